"""Loads in a query's transaction: versions first, then the values and degrees of what has changed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import neo4j.time
import pytest

from refresher import UNCHANGED, Previous, query
from refresher.errors import LoadFailed
from refresher.graph.changes import load_changed
from refresher.queries import Loaded, Query, Registry

AT = datetime(2026, 1, 1, tzinfo=UTC)
VERSION, DEGREE = "MATCH (n) RETURN n.v", "MATCH (n) RETURN n.d"


class Record(tuple[Any, ...]):
    """A row, as the driver gives it."""

    def value(self) -> Any:
        return self[0]

    def values(self) -> list[Any]:
        return list(self)


class Rows(list[Record]):
    """A result."""

    def single(self) -> Record | None:
        return self[0] if self else None


class Transaction:
    """Replies to each query with its rows, in order; records the queries."""

    def __init__(self, **rows: list[list[tuple[Any, ...]]]) -> None:
        self.rows = rows
        self.queries: list[tuple[str, Any]] = []

    def run(self, cypher: str, parameters: Any = None, **_: Any) -> Rows:
        name = {VERSION: "version", DEGREE: "degree"}[cypher]
        self.queries.append((name, parameters))
        return Rows(map(Record, self.rows[name].pop(0)))


def registered(loader: Callable[..., Any], **options: Any) -> Query:
    into = Registry()
    query("q", ttl=60, grace=30, into=into, **options)(loader)
    (found,) = into
    return found


def before(version: Any) -> Previous:
    return Previous(None, AT, version)


def never(*_: Any, **__: Any) -> Any:
    raise AssertionError("it is not to be called")


def load(made: Query, tx: Transaction, *previous: Previous | None) -> list[Loaded]:
    return load_changed(made, tx, [{"n": n} for n in range(len(previous))], previous, 1_000)


def test_an_unchanged_version_runs_neither_the_loader_nor_the_degree_query() -> None:
    tx = Transaction(version=[[(7, "a")]])
    assert load(registered(never, version_cypher=VERSION, degree=DEGREE), tx, before([7, "a"])) == [
        Loaded(UNCHANGED, 0, [7, "a"])
    ]
    assert tx.queries == [("version", {"n": 0})]


@pytest.mark.parametrize(
    ("row", "previous"),
    [((8,), before([7])), ((7, None), before([7])), ((7,), None), ((7,), before(7)), ((None,), before(None))],
    ids=["another", "a column more", "no entry", "a loader's own", "null"],
)
def test_a_possibly_changed_value_is_loaded_with_the_version_from_before_its_load(
    row: tuple[Any, ...], previous: Previous | None
) -> None:
    tx = Transaction(version=[[row]], degree=[[(3,)]])
    made = registered(lambda tx, n: "value", version_cypher=VERSION, degree=DEGREE)
    assert load(made, tx, previous) == [Loaded("value", 3, None if row == (None,) else list(row))]
    assert [name for name, _ in tx.queries] == ["version", "degree"]


def test_without_a_row_of_the_version_query_the_value_is_loaded_without_a_version() -> None:
    made = registered(lambda tx, n: None, version_cypher=VERSION)
    assert load(made, Transaction(version=[[]]), before([7])) == [Loaded(None)]


def test_a_version_is_kept_as_plain_values() -> None:
    at = neo4j.time.DateTime(2026, 11, 23, 1, 2, 3, 4)
    made = registered(lambda tx, n: "value", version_cypher=VERSION)
    (loaded,) = load(made, Transaction(version=[[(at,)]]), None)
    assert loaded.version == ["2026-11-23T01:02:03.000000004"]
    assert load(made, Transaction(version=[[(at,)]]), before(loaded.version)) == [Loaded(UNCHANGED, 0, loaded.version)]


@pytest.mark.parametrize("column", ["v" * 2_000, object()], ids=["too long", "of no kind"])
def test_a_version_that_can_t_be_stored_is_a_permanent_error(column: object) -> None:
    made = registered(never, version_cypher=VERSION)
    with pytest.raises(LoadFailed, match=r"the version of 'q' can't be kept .*: return at most 1024 bytes") as caught:
        load(made, Transaction(version=[[(column,)]]), None)
    assert (caught.value.kind, caught.value.is_transient) == ("version", False)


def test_only_the_changed_calls_of_a_batch_are_loaded() -> None:
    seen: list[Any] = []

    def loader(tx: Any, calls: list[dict[str, int]]) -> list[int]:
        seen.extend(calls)
        return [10 * call["n"] for call in calls]

    made = registered(loader, version_cypher=VERSION, degree=DEGREE, batch=10)
    tx = Transaction(version=[[(0,), (1,), (2,)]], degree=[[(5,), (6,)]])
    found = load(made, tx, before([1]), before([1]), None)
    assert found == [Loaded(0, 5, [0]), Loaded(UNCHANGED, 0, [1]), Loaded(20, 6, [2])]
    assert seen == [{"n": 0}, {"n": 2}]
    assert tx.queries == [
        ("version", {"calls": [{"n": 0}, {"n": 1}, {"n": 2}]}), ("degree", {"calls": [{"n": 0}, {"n": 2}]}),
    ]  # fmt: skip


@pytest.mark.parametrize("what", ["version", "degree"])
def test_a_missing_row_for_a_call_of_a_batch_is_an_error(what: str) -> None:
    rows = {"version": [[(1,), (2,)]], "degree": [[(1,), (2,)]]} | {what: [[(1,)]]}
    made = registered(lambda tx, calls: [1, 2], version_cypher=VERSION, degree=DEGREE, batch=10)
    with pytest.raises(LoadFailed, match=f"the {what} of 'q' has 1 rows for 2 calls: return one each, in order") as got:
        load(made, Transaction(**rows), None, None)
    assert got.value.kind == "wrong_batch"


def test_a_conditional_loader_is_given_the_previous_value() -> None:
    given: list[Any] = []

    def loader(tx: Any, n: int, *, previous: Previous | None) -> Any:
        given.append((n, previous))
        return UNCHANGED

    assert load(registered(loader, conditional=True), Transaction(), before(7)) == [Loaded(UNCHANGED)]
    assert given == [(0, before(7))]


def test_a_conditional_batch_loader_is_given_the_previous_values_of_the_changed_calls() -> None:
    given: list[Any] = []

    def loader(tx: Any, calls: list[dict[str, int]], previous: list[Previous | None]) -> list[Any]:
        given.extend(zip(calls, previous, strict=True))
        return [UNCHANGED] * len(calls)

    made = registered(loader, conditional=True, version_cypher=VERSION, batch=10)
    load(made, Transaction(version=[[(1,), (2,)]]), before([1]), before([1]))
    assert given == [({"n": 1}, before([1]))]
