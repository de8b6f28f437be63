"""Which decoded values may be given to several callers: those that nobody can change.

A value of such a type is decoded once, and kept beside the entry's bytes; any other is decoded anew for each caller.
"""

from __future__ import annotations

from functools import lru_cache
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
