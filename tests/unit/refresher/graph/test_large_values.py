"""The memory of values that are far too large: at most a small multiple of what is allowed."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import neo4j
import pytest
from neo4j.time import Date, Duration

from refresher.errors import LoadFailed
from refresher.graph import values
from tests.support.driver_values import friends_path

MIB = 1024 * 1024
LIMIT = 64 * 1024
# An integer takes a byte at least and nine at most, and a reference to it eight; a dict of two takes 230 bytes.
MAX_PEAK_BYTES, MAX_PEAK_BYTES_OF_DICTS = 24 * LIMIT, 80 * LIMIT
MANY = 40 * LIMIT


@dataclass
class Pair:
    left: Any
    right: Any


class PairStruct(msgspec.Struct):
    left: Any
    right: Any


class Unset(msgspec.Struct):
    tags: list[str] | msgspec.UnsetType = msgspec.UNSET


class Sparse(msgspec.Struct, omit_defaults=True):
    name: str = "n" * 100
    tags: list[str] | msgspec.UnsetType = msgspec.UNSET


def doubled(two: Callable[[object, object], object]) -> object:
    """Return 2^40 leaves in forty objects."""
    value: object = "leaf"
    for _ in range(40):
        value = two(value, value)
    return value


LARGE: dict[str, Callable[[], object]] = {
    "rows": lambda: [{"name": "x" * 100}] * (MANY // 100),
    "records": lambda: [neo4j.Record({"name": "x" * 100})] * (MANY // 100),
    "long names": lambda: [{"n" * 100: 1}] * (MANY // 100),
    "integers": lambda: [2**60] * MANY,
    "one text": lambda: "x" * MANY,
    "bytes": lambda: b"x" * MANY,
    "texts": lambda: ("x" * LIMIT,) * 40,
    "dates": lambda: [Date(2026, 7, 21)] * MANY,
    "nodes": lambda: [friends_path().start_node] * (MANY // 40),
    "paths": lambda: [friends_path()] * (MANY // 100),
    "doubled lists": lambda: doubled(lambda a, b: [a, b]),
    "doubled dicts": lambda: doubled(lambda a, b: {1: a, 2: b}),
    "doubled dataclasses": lambda: doubled(Pair),
    "doubled structs": lambda: doubled(PairStruct),
}


@pytest.mark.parametrize("kind", LARGE)
def test_a_value_that_is_far_too_large_is_refused_before_it_takes_memory(kind: str) -> None:
    value = LARGE[kind]()
    tracemalloc.start()
    try:
        with pytest.raises(LoadFailed, match="CACHE_MAX_VALUE_BYTES allows") as caught:
            values.encode(value, query="q", max_bytes=LIMIT)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < (MAX_PEAK_BYTES_OF_DICTS if kind.startswith("doubled") else MAX_PEAK_BYTES)
    assert (caught.value.kind, caught.value.is_transient) == ("too_large", False)


SMALL: dict[str, object] = {
    "nothing": None, "text": "ü" * 50, "bytes": b"x" * 50, "numbers": [0, -1, 2**60, 1.5, True, None],
    "empty": [[], {}, "", (), set(), b""], "rows": [{"id": 1, "name": "Ann"}] * 3,
    "many rows": [{"id": 1, "name": "Ann"}] * 30, "rows with gaps": [{"a": None, "b": "Ann"}, {"b": None, "a": 1}] * 15,
    "rows of other fields": [{"a": 1}, {"b": 2}] * 15, "longer rows": [{"a": 1}, {"a": 1, "b": Duration(days=1)}] * 15,
    "keys": {1: "a", "b": 2, None: 3},
    "dates": [Date(2026, 7, 21), Duration(days=1)], "a duration as key": {Duration(days=1): 1}, "path": friends_path(),
    "record": neo4j.Record({"node": friends_path().start_node}), "dataclass": Pair(1, Pair("a", [])),
    "struct": PairStruct(1, PairStruct("a", [])), "unset": [Unset()] * 30,
    "omitted fields": [Sparse()] * 30, "no omitted field": Sparse("n", ["t"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", SMALL)
def test_a_value_may_have_exactly_as_many_bytes_as_are_allowed(kind: str) -> None:
    encoded = values.encode(SMALL[kind], query="q", max_bytes=MIB).content
    assert values.encode(SMALL[kind], query="q", max_bytes=len(encoded)).content == encoded
    too_large = f"(has {len(encoded)}|has more than {len(encoded) - 1}) bytes; CACHE_MAX_VALUE_BYTES allows"
    with pytest.raises(LoadFailed, match=too_large) as caught:
        values.encode(SMALL[kind], query="q", max_bytes=len(encoded) - 1)
    assert (caught.value.kind, caught.value.is_transient) == ("too_large", False)


def test_rows_are_fetched_only_while_they_may_fit_and_the_rest_is_never_requested() -> None:
    taken, closed = [0], []

    def rows() -> Iterator[dict[str, str]]:
        try:
            while True:
                taken[0] += 1
                yield {"name": "x" * 99}
        finally:
            closed.append(True)

    with pytest.raises(LoadFailed, match="'q' has more than 1000 bytes; CACHE_MAX_VALUE_BYTES allows 1000") as caught:
        values.rows_of(rows(), query="q", max_bytes=1000)
    assert caught.value.kind == "too_large"
    assert taken == [10]
    assert closed
