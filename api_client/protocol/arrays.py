"""Arrays of numbers in a payload: one MessagePack extension that holds the numbers in their memory layout.

::

    extension type 1    byte 0: number of dimensions - 1 (high four bits), element type (low four)
                        if there are several dimensions, the length of each: four bytes, little-endian
                        the elements: little-endian, the last dimension varying fastest

An entry with arrays carries the flag `MustUnderstand.ARRAYS`. A read without a type gets lists.
"""

from __future__ import annotations

import array
import struct
import sys
from math import prod
from typing import Any, Final, NamedTuple

import msgspec

EXTENSION_TYPE: Final = 1
MAX_DIMENSIONS: Final = 16
ELEMENT_TYPES: Final = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
"""NumPy's names of the element types, in the order of their numbers in the format; new ones go at the end."""
_CODES: Final = dict(zip(ELEMENT_TYPES, "?bhiqBHIQefd", strict=True))
"""Codes of `struct`; all but the first and float16 are also codes of `array`."""


class PackedArray(NamedTuple):
    """An array as stored: its element type (one of `ELEMENT_TYPES`), its lengths and its elements' bytes."""

    element_type: str
    shape: tuple[int, ...]
    content: bytes

    def encode(self) -> msgspec.msgpack.Ext:
        """Return the array as a MessagePack extension; ``shape`` has 1 to 16 lengths."""
        first = (len(self.shape) - 1) << 4 | ELEMENT_TYPES.index(self.element_type)
        lengths = struct.pack(f"<{len(self.shape)}I", *self.shape) if len(self.shape) > 1 else b""
        return msgspec.msgpack.Ext(EXTENSION_TYPE, b"".join((bytes((first,)), lengths, self.content)))

    @classmethod
    def decode(cls, kind: int, data: memoryview) -> PackedArray:
        """Read an extension.

        Raises:
            ValueError: the extension is no array, or is broken.
        """
        if kind != EXTENSION_TYPE or not data:
            raise ValueError(f"an extension of type {kind}, which this release can't read")
        dimensions, number = (data[0] >> 4) + 1, data[0] & 15
        if number >= len(ELEMENT_TYPES):
            raise ValueError(f"an array of type {number}, which this release can't read")
        element_type = ELEMENT_TYPES[number]
        size = struct.calcsize(f"<{_CODES[element_type]}")
        if dimensions == 1:
            content = bytes(data[1:])
            shape: tuple[int, ...] = (len(content) // size,)
        else:
            content = bytes(data[1 + 4 * dimensions :])
            shape = struct.unpack_from(f"<{dimensions}I", data, 1) if len(data) > 4 * dimensions else ()
        if prod(shape) * size != len(content):
            raise ValueError(f"an array of {len(content)} bytes, which is not what its lengths say")
        return cls(element_type, shape, content)

    def flat(self) -> list[Any]:
        """Return the elements as Python numbers."""
        return list(struct.unpack(f"<{prod(self.shape)}{_CODES[self.element_type]}", self.content))

    def nested(self) -> list[Any]:
        """Return the elements in nested lists, one level per dimension."""
        found = self.flat()
        for length in self.shape[:0:-1]:
            found = [found[at : at + length] for at in range(0, len(found), length)]
        return found


class Numbers(list[Any]):
    """The elements of an array as lists, together with its stored form, for a read with a type."""

    packed: PackedArray


def as_list(kind: int, data: memoryview) -> list[Any]:
    """Decode an extension into lists of numbers.

    Raises:
        ValueError: as for `PackedArray.decode`.
    """
    return PackedArray.decode(kind, data).nested()


def as_numbers(kind: int, data: memoryview) -> Numbers:
    """Decode an extension for a decoder whose type decides the result; the errors are those of `as_list`."""
    packed = PackedArray.decode(kind, data)
    numbers = Numbers(packed.nested())
    numbers.packed = packed
    return numbers


def is_array_type(type_: Any) -> bool:
    """Return whether `as_array` supports the type: `array.array`, NumPy's ndarray or the driver's Vector."""
    return type_ is array.array or type_ is _loaded("numpy", "ndarray") or type_ is _loaded("neo4j.vector", "Vector")


def as_array(type_: Any, value: Any) -> Any:
    """Convert a decoded value (a `PackedArray`, Numbers or a list) to an array of a type (see `is_array_type`).

    Raises:
        ValueError, TypeError: the value does not fit.
    """
    packed = value if isinstance(value, PackedArray) else getattr(value, "packed", None)
    if type_ is array.array:
        return _as_stdlib_array(value, packed)
    if type_ is _loaded("numpy", "ndarray"):
        numpy: Any = sys.modules["numpy"]
        if packed is None:
            return numpy.asarray(value)
        # A copy, because an array over bytes is read-only.
        return numpy.frombuffer(packed.content, dtype=f"<{packed.element_type}").reshape(packed.shape).copy()
    if packed is None:
        return type_(list(map(float, value)), "f64")
    kind = f"{packed.element_type[0]}{8 * int(packed.element_type[1])}"
    return type_(packed.content, kind, byteorder="little")


def _as_stdlib_array(value: Any, packed: PackedArray | None) -> array.array[Any]:
    if packed is None:
        return array.array("q" if all(type(one) is int for one in value) else "d", value)
    code = {"b1": "b", "f2": "f"}.get(packed.element_type, _CODES[packed.element_type])
    return array.array(code, packed.flat())


def _loaded(module: str, name: str) -> Any:
    """Return a class of a module, or None, which is no type, if the module has not been imported."""
    return getattr(sys.modules.get(module), name, None)
