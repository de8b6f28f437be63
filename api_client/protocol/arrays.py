"""Arrays of numbers in a payload: one MessagePack extension, with the numbers as they lie in memory.

::

    extension type 1    byte 0: number of dimensions - 1 (high four bits), element type (low four)
                        of more than one dimension, the length of each: four bytes, little-endian
                        the elements: little-endian, the last dimension first

A value of one that has them carries the flag `MustUnderstand.ARRAYS`. Whoever asks for no type gets lists.
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
"""As NumPy names them, in the order of their numbers in the format. Only the end of it may grow."""
_CODES: Final = dict(zip(ELEMENT_TYPES, "?bhiqBHIQefd", strict=True))
"""Of `struct`, and of `array` but for the first one and float16."""


class PackedArray(NamedTuple):
    """An array as it is stored: its element type, one of `ELEMENT_TYPES`, its lengths, and its elements' bytes."""

    element_type: str
    shape: tuple[int, ...]
    content: bytes

    def encode(self) -> msgspec.msgpack.Ext:
        """Return it as a payload has it; ``shape`` has 1 to 16 lengths."""
        first = (len(self.shape) - 1) << 4 | ELEMENT_TYPES.index(self.element_type)
        lengths = struct.pack(f"<{len(self.shape)}I", *self.shape) if len(self.shape) > 1 else b""
        return msgspec.msgpack.Ext(EXTENSION_TYPE, b"".join((bytes((first,)), lengths, self.content)))

    @classmethod
    def decode(cls, kind: int, data: memoryview) -> PackedArray:
        """Read an extension.

        Raises:
            ValueError: it is none of these, or broken.
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
        """Return the elements as Python's numbers."""
        return list(struct.unpack(f"<{prod(self.shape)}{_CODES[self.element_type]}", self.content))

    def nested(self) -> list[Any]:
        """Return the elements in lists, one within the other for each dimension."""
        found = self.flat()
        for length in self.shape[:0:-1]:
            found = [found[at : at + length] for at in range(0, len(found), length)]
        return found


class Numbers(list[Any]):
    """The elements of an array, where a type has been asked for: as lists, and as they are stored."""

    packed: PackedArray


def as_list(kind: int, data: memoryview) -> list[Any]:
    """Read an extension as lists of numbers; for a decoder.

    Raises:
        ValueError: as `PackedArray.decode`.
    """
    return PackedArray.decode(kind, data).nested()


def as_numbers(kind: int, data: memoryview) -> Numbers:
    """Read an extension for a decoder whose types decide what becomes of it; raises as `as_list`."""
    packed = PackedArray.decode(kind, data)
    numbers = Numbers(packed.nested())
    numbers.packed = packed
    return numbers


def is_array_type(type_: Any) -> bool:
    """Return whether `as_array` makes values of a type: `array.array`, NumPy's ndarray, or the driver's Vector."""
    return type_ is array.array or type_ is _loaded("numpy", "ndarray") or type_ is _loaded("neo4j.vector", "Vector")


def as_array(type_: Any, value: Any) -> Any:
    """Return an array of a type (see `is_array_type`) of what a decoder has found: a `PackedArray`, Numbers, or a list.

    Raises:
        ValueError, TypeError: it does not fit.
    """
    packed = value if isinstance(value, PackedArray) else getattr(value, "packed", None)
    if type_ is array.array:
        return _as_stdlib_array(value, packed)
    if type_ is _loaded("numpy", "ndarray"):
        numpy: Any = sys.modules["numpy"]
        if packed is None:
            return numpy.asarray(value)
        # A copy: what is made of bytes can't be written to.
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
    """Return a class of a module that has been imported; None, which is no type, where it has not."""
    return getattr(sys.modules.get(module), name, None)
