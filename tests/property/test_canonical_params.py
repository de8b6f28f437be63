"""The canonical text of params against a plain walk and Python's own JSON: digests of them are recorded formats."""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from types import MappingProxyType
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from api_client.errors import InvalidQuery
from api_client.protocol.params import canonical_params

BERLIN = ZoneInfo("Europe/Berlin")


class Colour(Enum):
    RED = "red"


class Word(StrEnum):
    A = "a"


class Number(IntEnum):
    ONE = 1


class Text(str):
    """A subclass whose own text says something else."""

    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


class RefusedByWalk(Exception):
    """What is not JSON-like."""


def walk(value: Any) -> Any:  # noqa: C901 - a case for each type
    """Return JSON-like values, or raise, one type after the other."""
    while isinstance(value, Enum | np.generic):
        value = value.value if isinstance(value, Enum) else value.item()
    match value:
        case None | bool():
            return value
        case str():
            try:
                str.encode(value)
            except UnicodeEncodeError:
                raise RefusedByWalk from None
            return unicodedata.normalize("NFC", str.__str__(value))
        case int() if -(2**63) <= value < 2**63:
            return int(value)
        case float() if math.isfinite(value):
            return float(value)
        case UUID():
            return str(value)
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC).isoformat()
        case date() if not isinstance(value, datetime):
            return value.isoformat()
        case Decimal() if value.is_finite():
            text = format(value, "f")
            text = text.rstrip("0").rstrip(".") if "." in text else text
            return "0" if text == "-0" else text
        case list() | tuple():
            return list(map(walk, value))
        case Mapping():
            walked = [(walk(key), walk(item)) for key, item in value.items()]
            if not all(isinstance(key, str) for key, _ in walked) or len({key for key, _ in walked}) < len(walked):
                raise RefusedByWalk
            return dict(walked)
    raise RefusedByWalk


zones = st.sampled_from([None, UTC, timezone(timedelta(hours=-3, minutes=-30)), BERLIN])
scalars = (
    st.none() | st.booleans() | st.integers(-(2**64), 2**64) | st.integers(-3, 3) | st.floats() | st.floats(width=16)
    | st.text(max_size=5) | st.text(st.characters(), max_size=3) | st.uuids() | st.dates() | st.decimals(places=3)
    | st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9)
    | st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=zones)
    | st.sampled_from([Colour.RED, Word.A, Number.ONE, Text("x")])
    | st.sampled_from([np.int8(3), np.float32(0.1), np.bool_(True), np.str_("n")])
    | st.sampled_from([b"x", {1}, timedelta(1), object(), np.array([1]), 1j, float("nan"), "\ud800"])
)  # fmt: skip
keys = st.text(max_size=3) | st.sampled_from(["é", "e\u0301", Word.A, 1, None, "\ud800"])
values = st.recursive(
    scalars | st.lists(st.integers(-5, 2**63 + 1), max_size=20) | st.lists(st.integers(-5, 5), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=2).map(MappingProxyType)
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["a", "b", "Z", "_", "a1"]), values, max_size=4))
@example({"a": [1, True, 1.0, "1", Number.ONE]})
@example({"a": [2**63 - 1, -(2**63)]})
@example({"a": [2**63]})
@example({"a": [1e16, 1e-7, -0.0, 0.1, 5e-324, 1.7976931348623157e308]})
@example({"a": {"é": 1, "e\u0301": 2}})
@example({"a": [np.int64(1), 1]})
def test_the_text_is_that_of_a_plain_walk_and_what_that_refuses_is_refused(params: dict[str, Any]) -> None:
    try:
        expected = json.dumps(walk(params), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except RefusedByWalk:
        with pytest.raises(InvalidQuery):
            canonical_params("q", params)
    else:
        assert canonical_params("q", params) == expected
