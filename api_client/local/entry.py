"""Decoded entries: the in-process tier's form of an entry, and the rules for sharing values between callers.

An immutable value is decoded once and shared. Rows of flat fields, which most queries return, are copied for each
caller, in a third of the time of decoding. Any other value is decoded anew for each caller.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import msgspec

from api_client.protocol import payload, xfetch
from api_client.protocol.entry import FIXED_HEADER_BYTES, Header

NOT_KEPT: Final = object()
"""Stands for a value that is decoded anew at each read, because a caller might change it."""

ENTRY_OVERHEAD_BYTES: Final = 1_024  # the objects around an entry: header, key, dict slot (measured, rounded up)
EXTENSION_GROWTH: Final = 8  # a sample of δ takes 4 bytes in the header's extension, and 32 as an object
SHARED_GROWTH: Final = 24  # objects against their bytes: 4 for rows in Structs, 23 for tuples of one number (measured)
MAX_COPIED_BYTES: Final = 65_536
"""Largest payload kept decoded; a larger one would take up the room of many others."""


@dataclass(slots=True, eq=False)
class LocalEntry:
    """One decoded entry.

    Attributes:
        content: the uncompressed payload.
        header: the entry's header.
        earliest_at: the time before which no draw can trigger a refresh, in monotonic seconds.
        value: the decoded value if callers may have it or a copy; otherwise NOT_KEPT.
        type_: the type it was decoded as; if it is not kept, a type that no caller names.
        copy: makes each caller's copy; None if callers may share the value itself.
        expires_at: the time from which it may not be served, in monotonic seconds. Set by `LocalTier.fill`.
        quiet_until: the earlier of the two times; until then a hit needs no decision. Set by `LocalTier.fill`.
        held_bytes: its approximate memory. Set by `LocalTier.fill`.
        used: set by a read, to delay its eviction.
    """

    content: bytes
    header: Header
    earliest_at: float
    value: Any = NOT_KEPT
    type_: Any = NOT_KEPT
    copy: Callable[[Any], Any] | None = None
    expires_at: float = 0.0
    quiet_until: float = 0.0
    held_bytes: int = 0
    used: bool = False

    def size_bytes(self) -> int:
        """Estimate the entry's memory."""
        size = ENTRY_OVERHEAD_BYTES + len(self.content)
        size += EXTENSION_GROWTH * (self.header.length - FIXED_HEADER_BYTES)
        if self.value is NOT_KEPT:
            return size
        if self.copy is not None:
            return size + copied_bytes(self.value)
        flat = isinstance(self.value, str | bytes | int | float | None)
        return size + (sys.getsizeof(self.value) if flat else SHARED_GROWTH * len(self.content))


def decode_entry(
    raw: bytes, header: Header, type_: Any, query: str, max_bytes: int, *, earliest_at: float = 0.0
) -> tuple[Any, LocalEntry]:
    """Decode an entry's bytes; return the caller's own value, and the entry for later reads.

    Raises:
        DecodeError.
        TypeError: ``type_`` is not a decodable type.
    """
    content = payload.content_of(raw, header, query, max_bytes)
    value = payload.decode(content, type_, query)
    kept = local_entry(content, header, earliest_at, value, type_)
    return value if kept.copy is None else kept.copy(value), kept


def local_entry(content: bytes, header: Header, earliest_at: float, value: Any, type_: Any) -> LocalEntry:
    """Return an entry, with its value if callers may have it or a copy."""
    if is_shareable(value, type_):
        return LocalEntry(content, header, earliest_at, value, type_)
    copier = copier_of(value) if len(content) <= MAX_COPIED_BYTES else None
    if copier is None:
        return LocalEntry(content, header, earliest_at)
    return LocalEntry(content, header, earliest_at, value, type_, copier)


def value_of(kept: LocalEntry, type_: Any, query: str) -> Any:
    """Return the caller's own value of a decoded entry.

    Raises:
        DecodeError.
    """
    if kept.type_ is not type_:
        return payload.decode(kept.content, type_, query)
    copy = kept.copy
    return kept.value if copy is None else copy(kept.value)


def earliest_us(header: Header) -> int:
    """Return the earliest time of a possible trigger, in µs of Redis' clock; 0 if each read has to decide."""
    if header.generation > header.token:
        return 0  # invalidated: every read triggers
    try:
        return xfetch.earliest_positive_us(
            header.soft_expiry_us, delta_seconds=header.delta.mean, beta=header.beta, ttl_seconds=header.ttl_seconds
        )
    except (ValueError, OverflowError):  # NaN or infinity, which no worker writes
        return 0


_FLAT: Final = frozenset({str, bytes, int, float, bool, type(None)})
_FLAT_INFO: Final = (
    msgspec.inspect.NoneType,
    msgspec.inspect.BoolType,
    msgspec.inspect.IntType,
    msgspec.inspect.FloatType,
    msgspec.inspect.StrType,
    msgspec.inspect.BytesType,
    msgspec.inspect.DateTimeType,
    msgspec.inspect.DateType,
    msgspec.inspect.TimeType,
    msgspec.inspect.TimeDeltaType,
    msgspec.inspect.DecimalType,
    msgspec.inspect.UUIDType,
    msgspec.inspect.EnumType,
    msgspec.inspect.LiteralType,
)


def is_shareable(value: object, type_: Any) -> bool:
    """Return whether several callers may have ``value``, decoded as ``type_``.

    With Any, flat values are shareable. Otherwise the type decides: flat types, tuples and frozensets of them, frozen
    Structs and dataclasses, and unions of all these.
    """
    if type(value) in _FLAT:
        return True
    if type_ is Any:
        return False
    try:
        return _is_immutable(type_)
    except TypeError:  # an unhashable annotation
        return False


def copier_of(value: object) -> Callable[[Any], Any] | None:
    """Return a function that copies a decoded value without sharing anything mutable.

    The result is None for values that have to be decoded anew: all but dicts or lists of flat values, and lists of such
    dicts.
    """
    if type(value) is dict:
        return dict.copy if _FLAT.issuperset(map(type, value.values())) else None
    if type(value) is not list:
        return None
    kinds = set(map(type, value))
    if kinds <= _FLAT:
        return list.copy
    if kinds == {dict} and _FLAT.issuperset(map(type, chain.from_iterable(map(dict.values, value)))):
        return _copy_rows
    return None


def copied_bytes(value: Any) -> int:
    """Return the memory of a value that has a copier, contents included."""
    size = sys.getsizeof(value)
    for row in value if isinstance(value, list) else (value,):
        size += sys.getsizeof(row)
        if isinstance(row, dict):
            size += sum(map(sys.getsizeof, row.values()))
    return size


def _copy_rows(rows: list[dict[Any, Any]]) -> list[dict[Any, Any]]:
    return [*map(dict.copy, rows)]


@lru_cache(maxsize=256)
def _is_immutable(type_: Any) -> bool:
    return _cannot_change(msgspec.inspect.type_info(type_), frozenset())


def _cannot_change(info: msgspec.inspect.Type, within: frozenset[type]) -> bool:
    match info:
        case msgspec.inspect.Metadata(type=inner):
            return _cannot_change(inner, within)
        case msgspec.inspect.VarTupleType(item_type=item) | msgspec.inspect.FrozenSetType(item_type=item):
            return _cannot_change(item, within)
        case msgspec.inspect.TupleType(item_types=items) | msgspec.inspect.UnionType(types=items):
            return all(_cannot_change(item, within) for item in items)
        case (
            msgspec.inspect.StructType(cls=cls)
            | msgspec.inspect.DataclassType(cls=cls)
            | msgspec.inspect.NamedTupleType(cls=cls)
        ):
            if cls in within:  # a type that contains itself
                return True
            return _is_frozen(cls) and all(_cannot_change(field.type, within | {cls}) for field in info.fields)
    return isinstance(info, _FLAT_INFO)


def _is_frozen(cls: Any) -> bool:
    if issubclass(cls, tuple):
        return True
    if issubclass(cls, msgspec.Struct):
        return bool(cls.__struct_config__.frozen)
    params = getattr(cls, "__dataclass_params__", None)  # attrs has none, so nothing is known about it
    return params is not None and bool(params.frozen)
