"""Which decoded values may be given to several callers: those that nobody can change, and copies of plain ones.

Such a value is decoded once, and kept beside the entry's bytes; any other is decoded anew for each caller. Copies are
made of what a query mostly gives back, rows of flat fields: that takes a third of the time that decoding takes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import msgspec

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
    """Tell whether ``value``, decoded as ``type_``, may be given to several callers.

    With Any, flat values may. Otherwise the type decides: flat ones, tuples and frozensets of such, frozen Structs and
    frozen dataclasses, and unions of all these.
    """
    if type(value) in _FLAT:
        return True
    if type_ is Any:
        return False
    try:
        return _is_immutable(type_)
    except TypeError:  # an annotation that can't be hashed
        return False


def copier_of(value: object) -> Callable[[Any], Any] | None:
    """Return what makes a copy of a decoded value that shares nothing with it that can be changed.

    None where only decoding does: all but a dict or a list of flat values, and a list of such dicts.
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
    """Return the memory of a value that has a copier, all that is in it included."""
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
    params = getattr(cls, "__dataclass_params__", None)  # of attrs there are none, and nothing is known
    return params is not None and bool(params.frozen)
