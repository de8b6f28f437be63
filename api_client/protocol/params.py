"""Params of a query: their canonical form, and the plain values of arguments."""

from __future__ import annotations

import json
import math
import re
import sys
import unicodedata
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Final, TypeAlias
from uuid import UUID

from api_client.errors import InvalidQuery

Params: TypeAlias = Mapping[str, Any]

MAX_PARAMS_BYTES: Final = 16_384
MAX_DEPTH: Final = 16
MAX_DECIMAL_PLACES: Final = 1_000

_PARAM_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)


def plain(value: Any) -> Any:
    """Return the plain Python value of an argument, so that reader and worker make the same key of it.

    A member of an Enum is its value, a NumPy boolean, integer, float or str Python's own (a ``float32`` exactly, not
    rounded), an instance of a subclass of str, int or float one of the base. Anything else is returned as it is.
    """
    for _ in range(MAX_DEPTH):
        if isinstance(value, Enum):
            value = value.value
        elif _is_numpy_scalar(value):
            value = value.item()
        else:
            break
    # By the base's own methods: those of a subclass may say something else.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int.__int__(value)
    return float.__float__(value) if isinstance(value, float) else value


def _is_numpy_scalar(value: Any) -> bool:
    generic = getattr(sys.modules.get("numpy"), "generic", None)  # not imported: not one of its scalars
    # Not a datetime64: in nanoseconds `item` would make a bare integer of it.
    return isinstance(generic, type) and issubclass(type(value), generic) and bool(value.dtype.kind in "biufU")


def canonical_params(query: str, params: Params | None) -> str:
    """Return the one JSON text of ``params``: sorted, compact, Unicode NFC, ints and floats kept apart.

    Raises:
        InvalidQuery: not a mapping of identifiers to JSON-like values (None, bool, int within 64 bits, finite float,
            str, list or tuple, dict with string keys, and what stands for one of these: see `plain`; UUID, date, aware
            datetime and Decimal, which become text), nested deeper than 16, or larger than 16 KiB.
    """
    if params is None:
        return "{}"
    budget = _Budget(query)
    if not isinstance(params, Mapping):
        raise budget.refused(f" are {_kind(params)}: allowed is a mapping of names to values")
    for given in params:
        name = plain(given)
        if not isinstance(name, str) or not _PARAM_NAME.fullmatch(name):
            raise budget.refused(f": invalid parameter name {shown(name)}: must be an ASCII identifier")
    walked = _json_like(params, "", 0, budget)
    text = json.dumps(walked, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    if len(text.encode()) > MAX_PARAMS_BYTES:
        raise budget.too_large()
    return text


class _Budget:
    """Counts what was walked, so that a 1 GB list or a cycle is refused before it is copied."""

    def __init__(self, query: str) -> None:
        self.query = query
        self.left = MAX_PARAMS_BYTES

    def spend(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise self.too_large()

    def too_large(self) -> InvalidQuery:
        return self.refused(f" are larger than {MAX_PARAMS_BYTES} bytes of JSON, which is the most allowed")

    def refused(self, problem: str) -> InvalidQuery:
        return InvalidQuery(f"params of {self.query!r}{problem}", query=self.query)


def _json_like(value: object, path: str, depth: int, budget: _Budget) -> object:
    if depth > MAX_DEPTH:
        raise budget.refused(f": {path} is nested deeper than {MAX_DEPTH} (or contains itself)")
    budget.spend(1)
    value = plain(value)
    if isinstance(value, Mapping):
        return _json_object(value, path, depth, budget)
    if isinstance(value, list | tuple):
        return [_json_like(item, f"{path}[{index}]", depth + 1, budget) for index, item in enumerate(value)]
    return _scalar(value, path, budget)


def _json_object(value: Mapping[Any, Any], path: str, depth: int, budget: _Budget) -> dict[str, object]:
    walked: dict[str, object] = {}
    for given, item in value.items():
        key = plain(given)
        inner = f"{path}.{_step(key)}"
        name = _text(key, inner, budget)
        if name in walked:
            raise budget.refused(f": {inner.lstrip('.')} is there twice (two keys are the same text in Unicode NFC)")
        walked[name] = _json_like(item, inner, depth + 1, budget)
    return walked


def _scalar(value: object, path: str, budget: _Budget) -> object:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, path, budget)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise _not_json_like(value, path, budget, "integers fit in 64 bits")
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _not_json_like(value, path, budget, "NaN and infinities have no JSON")
        return value
    return _text(_text_of(value, path, budget), path, budget)


def _text_of(value: object, path: str, budget: _Budget) -> str:
    """Return the one text of a value that JSON has no type for; the loader gets that text."""
    match value:
        case UUID():
            return str(value)
        case datetime():
            # By the base's own methods: pandas' Timestamp has nanoseconds, which would be lost.
            if value.tzinfo is None or getattr(value, "nanosecond", False):
                raise _not_json_like(value, path, budget, "a datetime has a time zone, and whole microseconds")
            try:
                return datetime.isoformat(datetime.astimezone(value, UTC))
            except OverflowError as error:
                raise _not_json_like(value, path, budget, "a datetime is within the years 1 to 9999 of UTC") from error
        case date():
            return date.isoformat(value)
        case Decimal():
            return _decimal_text(value, path, budget)
    allowed = "None, bool, int, float, str, list, tuple, dict, UUID, date, datetime and Decimal are allowed"
    raise _not_json_like(value, path, budget, allowed)


def _decimal_text(value: Decimal, path: str, budget: _Budget) -> str:
    """Return a Decimal's digits without exponent and without zeros at the end: equal ones have one text."""
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or abs(exponent) > MAX_DECIMAL_PLACES:
        raise _not_json_like(value, path, budget, f"a Decimal is finite, its exponent within ±{MAX_DECIMAL_PLACES:,}")
    whole, _, fraction = Decimal.__format__(value, "f").partition(".")
    fraction = fraction.rstrip("0")
    text = f"{whole}.{fraction}" if fraction else whole
    return "0" if text == "-0" else text


def _text(value: object, path: str, budget: _Budget) -> str:
    if not isinstance(value, str):
        raise _not_json_like(value, path, budget, "keys of a dict are text")
    budget.spend(len(value))
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _not_json_like(value, path, budget, "text is valid Unicode (no lone surrogates)") from error
    return unicodedata.normalize("NFC", value)


def _not_json_like(value: object, path: str, budget: _Budget, allowed: str) -> InvalidQuery:
    return budget.refused(f": {path.lstrip('.')} is {_kind(value)}: {allowed}")


def _step(key: object) -> str:
    """Show a key in a path where it looks like a name; anything else may be personal."""
    return key if isinstance(key, str) and _PARAM_NAME.fullmatch(key[:61]) else f"<{_kind(key)}>"


def _kind(value: object) -> str:
    """Describe a param by its kind, not by its content, which may be personal."""
    if isinstance(value, str):
        return f"text of {len(value)} characters"
    if isinstance(value, int):
        return f"an integer of {value.bit_length()} bits"
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def shown(value: object) -> str:
    """Show a wrong value shortened, and by its type alone where it could be large."""
    if isinstance(value, str):
        return repr(value) if len(value) <= 60 else f"text of {len(value)} characters"
    if isinstance(value, int) and value.bit_length() > 200:
        # Python refuses to write out a very large one.
        return f"an integer of {value.bit_length()} bits"
    if value is None or isinstance(value, bool | int | float):
        return repr(value)[:60]
    return f"a {type(value).__name__}"
