"""The values that are cached: about 1 KiB each, another one for each number, so that a mix-up is seen."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, TypeAlias

import msgspec

Value: TypeAlias = Any
ValueOf: TypeAlias = Callable[[int], Value]

ROWS: Final = 10
TEXT_CHARACTERS: Final = 1_021  # with MessagePack's three bytes in front: 1 KiB
_FIRST_ID: Final = 10_000_000  # so that every id takes the same number of bytes


class PayloadKind(StrEnum):
    """Which values: ``rows`` is what a graph query gives back, ``text`` costs next to nothing to decode."""

    ROWS = "rows"
    TEXT = "text"


class Row(msgspec.Struct, frozen=True):
    """A row as a type that nobody can change."""

    id: int
    name: str
    mail: str
    city: str
    since: int
    weight: float


def frozen(value: Value) -> tuple[Any, Value]:
    """Return a type as which nobody can change such a value, and the value as that type."""
    type_: Any = str if isinstance(value, str) else tuple[Row, ...]
    return type_, msgspec.convert(value, type_)


def value_of(kind: PayloadKind) -> ValueOf:
    """Return the function that makes the value of a number."""
    return _text if kind is PayloadKind.TEXT else _rows


def described(kind: PayloadKind) -> str:
    """Say in words what the values are."""
    if kind is PayloadKind.TEXT:
        return "a text of 1 KiB"
    return f"{ROWS} rows of 6 fields, 1 KiB in all"


def _text(number: int) -> str:
    return f"{number:016d}".ljust(TEXT_CHARACTERS, "x")


def _rows(number: int) -> list[dict[str, object]]:
    first = _FIRST_ID + number * ROWS
    return [
        {
            "id": row,
            "name": f"Person no {row}",
            "mail": f"p{row}@example.org",
            "city": "Rotterdam",
            "since": 1_500_000_000 + row,
            "weight": 0.5 + row / 16,
        }
        for row in range(first, first + ROWS)
    ]
