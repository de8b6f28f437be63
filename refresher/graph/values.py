"""Encoding of a loader's result as a payload, with the driver's own types in a plain, documented shape.

======================  =============================================================================
Neo4j                   payload
======================  =============================================================================
Date, Time, DateTime    ISO 8601 text, with nine digits of the second and the offset, without a zone's name
Duration                ISO 8601 text, with one sign before it if all of it goes back in time
Point                   ``{"srid": …, "coordinates": […]}``
Vector                  an array of numbers (`api_client.protocol.arrays`)
Node                    ``{"id": …, "labels": […], "properties": {…}}``
Relationship            ``{"id": …, "type": …, "start": …, "end": …, "properties": {…}}``
Path                    ``{"nodes": […], "relationships": […]}``
Record                  a dict
======================  =============================================================================

docs/reference/values.md has the reader's side, and the types of other libraries, none of which is imported here.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from itertools import chain, islice
from pathlib import PurePath
from typing import Any, Final, NoReturn, TypeAlias

import msgspec
from celery.exceptions import SoftTimeLimitExceeded

from api_client.protocol.arrays import ELEMENT_TYPES, MAX_DIMENSIONS, PackedArray
from api_client.protocol.payload import Packed
from refresher.errors import LoadFailed, text_of
from refresher.graph import driver_types
from refresher.results import Previous, Result, Unchanged

_TEXT: Final = (str, bytes, bytearray)
_ELEMENTS_OF_VECTORS: Final = {"i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "f32": "f4", "f64": "f8"}
"""The element types of a Vector, named by their bits, mapped to those of an array, named by their bytes."""
_NOT_NUMBERS_OF_NUMPY: Final = "cMmV"
"""NumPy kinds that are refused: complex numbers, times without a zone or with their own units, raw memory."""
_ALLOWED: Final = (
    "None, numbers, text, bytes, dates and times, lists, dicts, dataclasses, models, or what the driver returns"
)
_INSTEAD: Final = (
    ("DataFrame", 'its rows: frame.to_dict("records")'),
    ("Series", "its values: series.to_list()"),
    ("Graph", "its nodes and relationships: list(graph.nodes), list(graph.relationships)"),
    ("UnsupportedType", "what this driver can read of it: upgrade the driver, or let the query convert the value"),
    ("AsyncResult", "rows of the loader's own transaction, which is not async"),
    ("Result", "its rows: result.data()"),
    ("generator", "a list of what it yields"),
    ("coroutine", "a value: a loader is no async function"),
    ("async_generator", "rows that are yielded by a function that is not async"),
    ("datetime64", "a datetime with a zone: value.astype(object).replace(tzinfo=…)"),
    ("SecretStr", "what may be stored: a cache is no place for secrets"),
    ("complex", "its two parts"),
    ("function", "what it returns"),
    ("builtin_function_or_method", "what it returns"),
)
"""Replacements that errors suggest for some values, by the name of their class or of a base."""
_MIN_ROWS: Final = 4
_ROWS_AT_A_TIME: Final = 1000
# Looked up by type, at a tenth of the cost of the checks below.
_AS_THEY_ARE: Final = frozenset({type(None), bool, int, float})
_PLAIN_IN_ROWS: Final = _AS_THEY_ARE | {str}


def encode(value: Any, *, query: str, max_bytes: int) -> Packed:
    """Return the uncompressed payload of a loader's value.

    A value that is far too large is refused before it is encoded, so that ``max_bytes`` bounds the cost of that.

    Raises:
        LoadFailed: ``not_encodable`` or ``too_large``, which another attempt would not change.
        MemoryError: there is no memory left.
        SoftTimeLimitExceeded: the load's time was over.
    """
    normaliser = _Normaliser(query, max_bytes)
    try:
        encoded = msgspec.msgpack.Encoder(enc_hook=_refuse).encode(normaliser.to_plain(value))
    except _SizeLimitExceeded:
        raise _too_large(query, f"more than {max_bytes}", max_bytes) from None
    except (MemoryError, SoftTimeLimitExceeded, LoadFailed):
        raise
    except Exception as error:
        # From the encoder or from the value's own methods: __iter__, __len__, a property.
        raise _not_encodable(query, text_of(error)) from error
    if len(encoded) > max_bytes:
        raise _too_large(query, str(len(encoded)), max_bytes)
    return Packed(encoded, has_arrays=normaliser.has_arrays)


def rows_of(rows: Iterator[Any], *, query: str, max_bytes: int) -> list[object]:
    """Take the rows that a loader yields, but no more of them than may fit into a payload.

    Raises:
        LoadFailed: ``too_large``, or ``not_encodable`` if a row is known to be.
    """
    normaliser = _Normaliser(query, max_bytes)
    try:
        return [normaliser.row_to_plain(row) for row in rows]
    except _SizeLimitExceeded:
        raise _too_large(query, f"more than {max_bytes}", max_bytes) from None
    finally:
        if isinstance(rows, Generator):
            rows.close()  # while still in the transaction


def _too_large(query: str, size: str, max_bytes: int) -> LoadFailed:
    text = f"the value of {query!r} has {size} bytes; CACHE_MAX_VALUE_BYTES allows {max_bytes}"
    return LoadFailed("too_large", text, is_transient=False)


def _not_encodable(query: str, why: str) -> LoadFailed:
    return LoadFailed("not_encodable", f"the value of {query!r} can't be encoded: {why}", is_transient=False)


class _SizeLimitExceeded(Exception):
    """The value takes more than the allowed size, however it is encoded."""


class _Normaliser:
    """Makes plain values from a loader's result while they may fit; each takes at least a byte.

    Attributes:
        has_arrays: True if there are arrays among them.
    """

    def __init__(self, query: str, max_bytes: int) -> None:
        self._query = query
        self._left_bytes = max_bytes
        self.has_arrays: bool = False

    def to_plain(self, value: object) -> object:
        """Normalise a value; one that the encoder knows is returned unchanged."""
        kind = type(value)
        return value if kind in _AS_THEY_ARE else _shape_of(kind)(self, value)  # type: ignore[arg-type]

    def row_to_plain(self, value: object) -> object:
        """Normalise one of many values."""
        self.charge(1)
        return self.to_plain(value)

    def charge(self, byte_count: int) -> None:
        """Count at least ``byte_count`` bytes."""
        self._left_bytes -= byte_count
        if self._left_bytes < 0:
            raise _SizeLimitExceeded

    def text(self, value: str | bytes | bytearray) -> object:
        self.charge(len(value))
        if isinstance(value, str):
            return str.__str__(value)  # for a subclass too, with the base class's method, as for a param
        return value if type(value) in _TEXT else bytes(value)

    def many(self, value: Collection[object]) -> object:
        self.charge(len(value))
        if len(value) < _MIN_ROWS or type(next(iter(value))) is not dict:
            return [self.to_plain(item) for item in value]
        plain: list[object] = []
        items = iter(value)
        while rows := list(islice(items, _ROWS_AT_A_TIME)):
            plain += rows if self._are_plain_rows(rows) else map(self.to_plain, rows)
        return plain

    def _are_plain_rows(self, rows: Sequence[Any]) -> bool:
        """Return whether all rows have the same fields with text and numbers; if so, count them by columns, in C."""
        names: set[Any] = set(chain.from_iterable(rows)) if set(map(type, rows)) == {dict} else {None}
        if set(map(type, names)) != {str} or len(rows[0]) != len(names):
            return False
        byte_count = len(rows) * (sum(map(len, names)) + 2 * len(names))
        try:
            for column in zip(*map(dict.values, rows), strict=True):
                kinds = set(map(type, column))
                if not kinds <= _PLAIN_IN_ROWS:
                    return False
                if str in kinds:
                    byte_count += sum(map(len, column if len(kinds) == 1 else filter(_is_text, column)))
        except ValueError:
            return False  # a row has fewer fields
        self.charge(byte_count)
        return True

    def mapping(self, value: Mapping[Any, Any]) -> dict[Any, object]:
        # Most values are rows of text and numbers, and a short refresh spends most of its CPU time in this loop.
        plain: dict[Any, object] = {}
        for key, item in value.items():
            kind = type(item)
            byte_count = len(key) + 2 if isinstance(key, _TEXT) else 2
            if kind is str:
                byte_count += len(item)
            self._left_bytes -= byte_count
            if self._left_bytes < 0:
                raise _SizeLimitExceeded
            plain[key if type(key) is str else self.key(key)] = (
                item if kind is str or kind in _AS_THEY_ARE else self.to_plain(item)
            )
        return plain

    def key(self, value: object) -> object:
        plain = self.to_plain(value)
        if isinstance(plain, list | dict):
            kind = type(value).__name__
            raise _not_encodable(self._query, f"a dict has a {kind} as a key: return a list of pairs, or text as key")
        return plain

    def own(self, value: Result | Unchanged | Previous) -> NoReturn:
        # The encoder would take them for a dataclass and an Enum.
        raise _not_encodable(self._query, f"a {type(value).__name__} is within another value: return it as the value")

    def struct(self, value: msgspec.Struct) -> msgspec.Struct:
        # A changed copy, since the encoder has to apply the type's own options (tag, rename, array_like).
        plain = copy.copy(value)
        # Omitted fields do not count, and which defaults will be omitted is not known here.
        normaliser = _Normaliser(self._query, sys.maxsize) if value.__struct_config__.omit_defaults else self
        for name in value.__struct_fields__:
            if (item := getattr(value, name)) is not msgspec.UNSET:
                normaliser.charge(1)
                msgspec.structs.force_setattr(plain, name, normaliser.to_plain(item))
        self.has_arrays |= normaliser.has_arrays
        return plain

    def fields(self, value: object, names: Iterable[str]) -> object:
        return self.mapping({name: getattr(value, name) for name in names if hasattr(value, name)})

    def model(self, value: Any) -> object:
        # Not with `model_dump`, which turns the driver's types into plain tuples.
        fields = type(value).model_fields
        if fields.keys() == {"root"}:
            return self.to_plain(value.root)
        named = {_name_in(field) or name: getattr(value, name) for name, field in fields.items() if not field.exclude}
        return self.mapping(named | (value.model_extra or {}))

    def node(self, value: driver_types.Node) -> object:
        self.charge(len("id labels properties") + len(value.element_id))
        return {"id": value.element_id, "labels": sorted(value.labels), "properties": self.mapping(dict(value))}

    def relationship(self, value: driver_types.Relationship) -> object:
        start, end = (node.element_id if node is not None else None for node in value.nodes)
        self.charge(len("id type start end properties") + len(value.element_id) + len(start or "") + len(end or ""))
        return {
            "id": value.element_id, "type": value.type, "start": start, "end": end,
            "properties": self.mapping(dict(value)),
        }  # fmt: skip

    def path(self, value: driver_types.Path) -> object:
        self.charge(len("nodes relationships"))
        return {"nodes": self.many(value.nodes), "relationships": self.many(value.relationships)}

    def vector(self, value: driver_types.Vector) -> object:
        return self._array(_ELEMENTS_OF_VECTORS[value.dtype.value], (len(value),), value.raw(byteorder="little"))

    def numpy(self, value: Any) -> object:
        """Normalise a NumPy scalar or array."""
        if value.dtype.kind in _NOT_NUMBERS_OF_NUMPY:
            return value
        element_type = f"{value.dtype.kind}{value.dtype.itemsize}"
        # A subclass may mean more than its elements: a masked array has None in places.
        if type(value).__name__ == "ndarray" and element_type in ELEMENT_TYPES and value.size and value.ndim:
            little = value.astype(value.dtype.newbyteorder("<"), copy=False)
            return self._array(element_type, value.shape, little.tobytes())
        plain = value.tolist()
        return value if type(plain) is type(value) else self.to_plain(plain)

    def _array(self, element_type: str, shape: tuple[int, ...], content: bytes) -> object:
        self.charge(len(content))
        packed = PackedArray(element_type, shape, content)
        if len(shape) > MAX_DIMENSIONS:
            return packed.nested()
        self.has_arrays = True
        return packed.encode()


Shape: TypeAlias = Callable[[_Normaliser, Any], object]
_SHAPES: Final[tuple[tuple[type | tuple[type, ...], Shape], ...]] = (
    ((Result, Unchanged, Previous), _Normaliser.own),
    (Enum, lambda normaliser, value: normaliser.to_plain(value.value)),
    (_TEXT, _Normaliser.text),
    ((dict, driver_types.Record), _Normaliser.mapping),
    # These are tuples too, which the encoder would take for arrays.
    (driver_types.EagerResult, lambda normaliser, value: normaliser.many(value.records)),
    (driver_types.Duration, lambda _, value: _duration(value)),
    (driver_types.Point, lambda _, value: {"srid": value.srid, "coordinates": list(value)}),
    ((list, tuple, set, frozenset), _Normaliser.many),
    (msgspec.Struct, _Normaliser.struct),
    ((driver_types.Date, driver_types.Time, driver_types.DateTime), lambda _, value: value.iso_format()),
    (driver_types.Node, _Normaliser.node),
    (driver_types.Relationship, _Normaliser.relationship),
    (driver_types.Path, _Normaliser.path),
    (driver_types.Vector, _Normaliser.vector),
    (PurePath, lambda normaliser, value: normaliser.text(str(value))),
)
"""Normalisers by type, of which the first that fits applies; their methods have no docstrings of their own."""


@lru_cache(maxsize=1_024)
def _shape_of(kind: type) -> Shape:
    """Return the normaliser for values of a type."""
    if str(kind.__module__).partition(".")[0] == "numpy" and hasattr(kind, "tolist"):
        return _Normaliser.numpy
    for types, shape in _SHAPES:
        if issubclass(kind, types):
            return shape
    for base in (int, float):
        if issubclass(kind, base):
            return lambda _, value: base(value)
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
        return lambda normaliser, value: normaliser.fields(value, names)
    if hasattr(kind, "__attrs_attrs__"):
        names = [field.name for field in kind.__attrs_attrs__]
        return lambda normaliser, value: normaliser.fields(value, names)
    if hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_dump"):
        return _Normaliser.model
    return lambda _, value: value


def _name_in(field: Any) -> str | None:
    """Return the name by which a pydantic field is validated, if that is not its own."""
    alias = field.validation_alias
    return alias if isinstance(alias, str) else field.alias


def _is_text(value: object) -> bool:
    return type(value) is str


def _refuse(value: object) -> NoReturn:
    """Refuse a value that the encoder does not know, suggesting a replacement."""
    kind = type(value)
    names = {base.__name__ for base in kind.__mro__}
    instead = next((instead for name, instead in _INSTEAD if name in names), _ALLOWED)
    raise TypeError(f"{kind.__module__}.{kind.__qualname__} has no shape in a payload: return {instead}")


def _duration(value: driver_types.Duration) -> str:
    # A reader's timedelta can be parsed from "-P1DT2S", but not from the driver's "P-1DT-2S".
    if any(value) and max(value) <= 0:
        return f"-{(-value).iso_format()}"
    return value.iso_format()
