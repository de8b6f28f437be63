"""The cache of keys: each lookup returns the right key, whatever was requested before and however alike the params."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from types import MappingProxyType
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_client.errors import InvalidQuery
from api_client.protocol.keys import REMEMBERED_KEYS, make_key
from tests.support.internals import new_key, remembered_keys

BERLIN = ZoneInfo("Europe/Berlin")


class Text(str):
    """Equal to the str, with the same hash."""

    __slots__ = ()


class Half(float):
    """Equal to the float, with the same hash."""

    __slots__ = ()


class Number(enum.IntEnum):
    ONE = 1


class Word(enum.StrEnum):
    A = "a"


class Same:
    """Equal to everything."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash(1)


ALIKE: list[Any] = [
    1, True, 1.0, "1", Number.ONE, Text("1"), 0, False, 0.0, -0.0, "", None, "None", "a", Text("a"), Word.A, b"a",
    Same(), [1], [True], [1.0], (1,), (True,), (1.0,), {"x": 1}, {"x": True}, {"x": 1.0}, {"x": -0.0}, {"x": 0.0},
    0.5, Half(0.5), np.float64(0.5), Decimal("0.5"), Decimal("0.50"), Decimal(0), Decimal("-0"), Decimal("NaN"),
    UUID(int=1), str(UUID(int=1)), date(2026, 10, 25), datetime(2026, 10, 25), "2026-10-25",
    datetime(2026, 10, 25, 1, 30, tzinfo=UTC), datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
    datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN), datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN),
    datetime(2026, 10, 25, 2, 30, tzinfo=timezone(timedelta(hours=1))),
    datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=timezone(timedelta(hours=2))),
    [], (), {}, {1}, "é", "e\u0301", "\ud800", 2**63, 2**63 - 1, "x" * 256, "x" * 257, float("nan"),
]  # fmt: skip
values = st.sampled_from(ALIKE) | st.integers(-3, 3) | st.text(max_size=3) | st.floats(width=16)
names = st.sampled_from(["a", "b", "c", Text("a"), Word.A, "1a", "", 1, True])
params = st.none() | st.dictionaries(names, values, max_size=10)
queries = st.sampled_from(["q", "r", Text("q"), Word.A, "a", "1", 1, None, True, [], b"q"])
versions = st.sampled_from([1, 2, True, 1.0, Number.ONE, "1", 0, None, 2.0])


def made(make: Any, *args: Any) -> Any:
    try:
        key = make(*args)
    except InvalidQuery as error:
        return str(error), error.query
    return key, type(key.version) is bool


@given(st.lists(st.tuples(queries, params, versions), min_size=1, max_size=8))
def test_a_remembered_key_equals_a_new_one(calls: list[tuple[Any, Any, Any]]) -> None:
    for query, given_params, version in calls * 2:
        expected = made(new_key, "ns", query, given_params, version)
        assert made(make_key, "ns", query, given_params, version) == expected


@pytest.mark.parametrize("wrapped", [lambda one: one, lambda one: [one], lambda one: {"q": one}])
def test_params_that_only_look_alike_do_not_share_a_remembered_key(wrapped: Callable[[Any], Any]) -> None:
    for pair in itertools.product(ALIKE, repeat=2):
        remembered_keys().cache_clear()
        for one in pair:
            given_params = {"p": wrapped(one)}
            assert made(make_key, "ns", "q", given_params, 1) == made(new_key, "ns", "q", given_params, 1)


def test_a_non_dict_mapping_and_a_dict_subclass_have_the_key_of_a_dict() -> None:
    class Ordered(dict[str, Any]):
        pass

    expected = make_key("ns", "q", {"a": 1}, 1)
    assert make_key("ns", "q", MappingProxyType({"a": 1}), 1) == expected
    assert make_key("ns", "q", Ordered(a=1), 1) == expected


def test_remembered_keys_are_bounded_in_number_and_size() -> None:
    remembered_keys().cache_clear()
    for large in ({"a": "x" * 257}, {f"p{number}": 1 for number in range(9)}, {"a": 0.0}, {"a": [1]}, {"a": Text("x")}):
        make_key("ns", "q", large, 1)
    assert remembered_keys().cache_info().currsize == 0
    for number in range(REMEMBERED_KEYS + 100):
        make_key("ns", "q", {"a": number}, 1)
    assert remembered_keys().cache_info().currsize == REMEMBERED_KEYS
