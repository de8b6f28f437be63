"""Calls of loaders: of those that take one call's params by name, and of those that take a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any

import pytest

from refresher import Result
from refresher.errors import LoadFailed
from refresher.graph.call import call_loader
from refresher.queries import Query, Registry, query

CALLS = [{"n": 1}, {"n": 2}, {"n": 3}]
NOTHING = [None] * 3


def registered(loader: Callable[..., Any], batch: int | None = 10) -> Query:
    into = Registry()
    query("q", ttl=60, grace=30, batch=batch, into=into)(loader)
    (found,) = into
    return found


def yielding(tx: object, calls: list[dict[str, int]]) -> Iterator[int]:
    for call in calls:
        yield call["n"]


@pytest.mark.parametrize(
    "loader",
    [
        yielding,
        lambda tx, calls: [call["n"] for call in calls],
        lambda tx, calls: tuple(call["n"] for call in calls),
        lambda tx, calls: dict.fromkeys(call["n"] for call in calls).keys(),
    ],
)
def test_a_batch_returns_one_value_for_each_call(loader: Callable[..., Any]) -> None:
    assert call_loader(registered(loader), None, CALLS, NOTHING, 1_000) == [1, 2, 3]


def test_rows_yielded_by_a_result_become_a_list_and_its_terms_stay() -> None:
    found = call_loader(registered(lambda tx, n: Result(iter([n]), ttl=5), batch=None), None, CALLS, NOTHING, 1_000)
    assert found == [Result([1], ttl=5), Result([2], ttl=5), Result([3], ttl=5)]


def test_rows_yielded_by_one_value_of_a_batch_become_a_list() -> None:
    found = call_loader(
        registered(lambda tx, calls: [iter([call["n"]]) for call in calls]), None, CALLS, NOTHING, 1_000
    )
    assert found == [[1], [2], [3]]


def test_a_loader_may_mutate_its_calls_without_changing_the_caller_s() -> None:
    calls = [dict(call) for call in CALLS]
    call_loader(registered(lambda tx, calls: [call.pop("n") for call in calls]), None, calls, NOTHING, 1_000)
    assert calls == CALLS


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([1, 2], "returned 2 values for a list of 3"),
        ([], "returned 0 values for a list of 3"),
        ([1, 2, 3, 4], "returned more than 3 values for a list of 3"),
        (count(), "returned more than 3 values for a list of 3"),
        ({1: 1, 2: 2, 3: 3}, "returned dict for a list of 3"),
        ("abc", "returned str for a list of 3"),
        (None, "returned NoneType for a list of 3"),
        (5, "returned int for a list of 3"),
    ],
)
def test_a_wrong_result_of_a_batch_loader_is_an_error_that_says_what_to_return(
    returned: Iterable[int], message: str
) -> None:
    with pytest.raises(
        LoadFailed, match=f"the batch loader of 'q' {message}: return one value each, in their order"
    ) as e:
        call_loader(registered(lambda tx, calls: returned), None, CALLS, NOTHING, 1_000)
    assert (e.value.kind, e.value.is_transient) == ("wrong_batch", False)
