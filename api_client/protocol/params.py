"""Params of a query: their canonical text, and plain Python values for arguments."""

from __future__ import annotations

import math
import re
import sys
import unicodedata
from array import array
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NoReturn, TypeAlias
from uuid import UUID

import msgspec

from api_client.errors import InvalidQuery

Params: TypeAlias = Mapping[str, Any]
Path: TypeAlias = tuple[Any, ...]
"""The keys and indexes that lead to a value; an index is a list of one."""

MAX_PARAMS_BYTES: Final = 16_384
MAX_DEPTH: Final = 16
MAX_DECIMAL_PLACES: Final = 1_000

_MAX_INT: Final = 2**63
_PARAM_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)
_encode = msgspec.json.Encoder(order="deterministic").encode


def plain(value: Any) -> Any:
    """Return the plain Python value of an argument, so that reader and worker make the same key from it.

    An Enum's member becomes its value, a NumPy boolean, integer, float or str becomes Python's own (a ``float32``
    exactly, without rounding), and an instance of a subclass of str, int or float one of the base class. Anything else
    is returned unchanged.
    """
    for _ in range(MAX_DEPTH):
        if isinstance(value, Enum):
            value = value.value
        elif _is_numpy_scalar(value):
            value = value.item()
        else:
            break
    # With the base class's methods, since a subclass may override them.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int.__int__(value)
    return float.__float__(value) if isinstance(value, float) else value


def _is_numpy_scalar(value: Any) -> bool:
    generic = getattr(sys.modules.get("numpy"), "generic", None)  # None if NumPy was not imported
    # Excludes datetime64: `item` would turn nanoseconds into a bare integer.
    return isinstance(generic, type) and issubclass(type(value), generic) and bool(value.dtype.kind in "biufU")


def canonical_params(query: str, params: Params | None) -> str:
    """Return the canonical JSON text of ``params``: sorted, compact, Unicode NFC, with ints and floats kept apart.

    Raises:
        InvalidQuery: they are not a mapping of identifiers to JSON-like values, are nested deeper than 16, or are
            larger than 16 KiB. JSON-like are None, bool, int within 64 bits, finite float, str, list, tuple, dict with
            string keys, their equivalents (see `plain`), and UUID, date, aware datetime and Decimal, which become text.
    """
    if params is None:
        return "{}"
    walk = _Walk(query)
    if type(params) is not dict and not isinstance(params, Mapping):
        raise walk.refused(f" are {_kind(params)}: expected a mapping of names to values")
    for given in params:
        if type(given) is not str or not _is_param_name(given):
            name = plain(given)
            if not isinstance(name, str) or not _is_param_name(name):
                raise walk.refused(f": invalid parameter name {shown(name)}: must be an ASCII identifier")
    encoded = _encode(walk.mapping(params, (), 0))
    if len(encoded) > MAX_PARAMS_BYTES:
        raise walk.too_large()
    return encoded.decode()


@lru_cache(maxsize=1_024)
def _is_param_name(name: str) -> bool:
    return _PARAM_NAME.fullmatch(name) is not None


class _Walk:
    """Converts params for the encoder and counts their size, so that 1 GB or a cycle is refused before it is copied."""

    def __init__(self, query: str) -> None:
        self.query = query
        self.left = MAX_PARAMS_BYTES

    def value(self, value: Any, path: Path, depth: int) -> object:
        if depth > MAX_DEPTH:
            raise self.refused(f": {_shown_path(path)} is nested deeper than {MAX_DEPTH} (or contains itself)")
        self.left -= 1
        if self.left < 0:
            raise self.too_large()
        make = _MAKE.get(type(value))
        if make is None:
            value = plain(value)
            make = next((make for kind, make in _MAKE.items() if isinstance(value, kind)), _Walk.other)
        return make(self, value, path, depth)

    def mapping(self, value: Mapping[Any, Any], path: Path, depth: int) -> object:
        walked: dict[str, object] = {}
        for given, item in value.items():
            key = given if type(given) is str else plain(given)
            inner = (*path, key)
            name = self.text(key, inner, depth)
            if name in walked:
                problem = "is there twice (two keys are the same text in Unicode NFC)"
                raise self.refused(f": {_shown_path(inner)} {problem}")
            walked[name] = self.value(item, inner, depth + 1)
        return walked

    def many(self, value: Sequence[Any], path: Path, depth: int) -> object:
        if len(value) > self.left:
            raise self.too_large()
        if depth < MAX_DEPTH and set(map(type, value)) == {int}:
            try:
                array("q", value)
            except OverflowError:
                pass  # the walk below finds the faulty one
            else:
                self.left -= len(value)
                return value
        return [self.value(item, (*path, [index]), depth + 1) for index, item in enumerate(value)]

    def whole(self, value: int, path: Path, _depth: int) -> object:
        if not -_MAX_INT <= value < _MAX_INT:
            raise self.not_json_like(value, path, "integers fit in 64 bits")
        return value

    def real(self, value: float, path: Path, _depth: int) -> object:
        if not math.isfinite(value):
            raise self.not_json_like(value, path, "NaN and infinities have no JSON")
        return msgspec.Raw(float.__repr__(value).encode())  # the encoder writes exponents differently

    def text(self, value: object, path: Path, _depth: int) -> str:
        if not isinstance(value, str):
            raise self.not_json_like(value, path, "keys of a dict are text")
        self.left -= len(value)
        if self.left < 0:
            raise self.too_large()
        if value.isascii():
            return value
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise self.not_json_like(value, path, "text is valid Unicode (no lone surrogates)") from error
        return unicodedata.normalize("NFC", value)

    def datetime(self, value: datetime, path: Path, _depth: int) -> object:
        # With the base class's methods. pandas' Timestamp has nanoseconds, which would be lost.
        if value.tzinfo is None or getattr(value, "nanosecond", False):
            raise self.not_json_like(value, path, "a datetime has a time zone, and whole microseconds")
        try:
            return datetime.isoformat(datetime.astimezone(value, UTC))
        except OverflowError as error:
            raise self.not_json_like(value, path, "a datetime is within the years 1 to 9999 of UTC") from error

    def decimal(self, value: Decimal, path: Path, _depth: int) -> object:
        """Return a Decimal's digits without an exponent and trailing zeros, so that equal ones have the same text."""
        exponent = value.as_tuple().exponent
        if not isinstance(exponent, int) or abs(exponent) > MAX_DECIMAL_PLACES:
            problem = f"a Decimal is finite, its exponent within ±{MAX_DECIMAL_PLACES:,}"
            raise self.not_json_like(value, path, problem)
        text = Decimal.__format__(value, "f")
        text = text.rstrip("0").removesuffix(".") if "." in text else text
        return self.text("0" if text == "-0" else text, path, _depth)

    def other(self, value: object, path: Path, _depth: int) -> NoReturn:
        allowed = "None, bool, int, float, str, list, tuple, dict, UUID, date, datetime and Decimal are allowed"
        raise self.not_json_like(value, path, allowed)

    def too_large(self) -> InvalidQuery:
        return self.refused(f" are larger than {MAX_PARAMS_BYTES} bytes of JSON, which is the most allowed")

    def not_json_like(self, value: object, path: Path, allowed: str) -> InvalidQuery:
        return self.refused(f": {_shown_path(path)} is {_kind(value)}: {allowed}")

    def refused(self, problem: str) -> InvalidQuery:
        return InvalidQuery(f"params of {self.query!r}{problem}", query=self.query)


# A value of a subclass takes the first match in this order.
_MAKE: Final[dict[type, Callable[[_Walk, Any, Path, int], object]]] = {
    type(None): lambda _, value, *__: value,
    bool: lambda _, value, *__: value,
    int: _Walk.whole,
    str: _Walk.text,
    float: _Walk.real,
    UUID: lambda _, value, *__: str(value),
    dict: _Walk.mapping,
    list: _Walk.many,
    tuple: _Walk.many,
    datetime: _Walk.datetime,
    date: lambda _, value, *__: date.isoformat(value),
    Decimal: _Walk.decimal,
    Mapping: _Walk.mapping,
}


def _shown_path(path: Path) -> str:
    """Show where a value is, by the keys that look like names, since others may be personal."""
    steps = (str(step) if type(step) is list else f".{_step(step)}" for step in path)
    return "".join(steps).lstrip(".")


def _step(key: object) -> str:
    """Show a key of a path if it looks like a name; anything else may be personal."""
    return key if isinstance(key, str) and _PARAM_NAME.fullmatch(key[:61]) else f"<{_kind(key)}>"


def _kind(value: object) -> str:
    """Describe a param by its kind, because its content may be personal."""
    if isinstance(value, str):
        return f"text of {len(value)} characters"
    if isinstance(value, int):
        return f"an integer of {value.bit_length()} bits"
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def shown(value: object) -> str:
    """Show a wrong value in short, or only its type if it could be large."""
    if isinstance(value, str):
        return repr(value) if len(value) <= 60 else f"text of {len(value)} characters"
    if isinstance(value, int) and value.bit_length() > 200:
        # Python refuses to print a very large int.
        return f"an integer of {value.bit_length()} bits"
    if value is None or isinstance(value, bool | int | float):
        return repr(value)[:60]
    return f"a {type(value).__name__}"
