"""A loader's transaction begins with its first query, and an error of its beginning is not lost."""

from __future__ import annotations

from typing import Any, Self, cast

import neo4j
import pytest

from refresher.graph import transaction as transactions
from refresher.graph.transaction import ReadTransaction


class FakeTransaction:
    def __init__(self, log: list[str], commit_fails: Exception | None) -> None:
        self._log, self._commit_fails = log, commit_fails

    def run(self, query: str, parameters: dict[str, Any] | None = None, **more: Any) -> str:
        self._log.append(f"run {query} {(parameters or {}) | more}")
        return "a result"

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._log.append("commit" if kind is None else "roll back")
        if kind is None and self._commit_fails is not None:
            raise self._commit_fails


class FakeSession:
    def __init__(
        self,
        refuses: Exception | None = None,
        commit_fails: Exception | None = None,
        pipelined_begin: Any = None,
    ) -> None:
        self.log: list[str] = []
        self._refuses, self._commit_fails = refuses, commit_fails
        self._pipelined_begin = pipelined_begin

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.log.append("close")

    def begin_transaction(self, timeout: float) -> FakeTransaction:
        self.log.append(f"begin, at most {timeout:g} s")
        if self._pipelined_begin:
            self.log.append("begin in the next round trip")
        if self._refuses is not None:
            raise self._refuses
        return FakeTransaction(self.log, self._commit_fails)


def transaction(session: FakeSession) -> ReadTransaction:
    def opened() -> neo4j.Session:
        session.log.append("open")
        return cast("neo4j.Session", session)

    return ReadTransaction(opened, 2.5)


def test_a_loader_without_queries_opens_no_session_and_begins_no_transaction() -> None:
    session = FakeSession()
    with transaction(session) as tx:
        tx.cut()
    assert session.log == []


def test_all_queries_run_in_one_transaction_that_is_committed() -> None:
    session = FakeSession()
    with transaction(session) as tx:
        assert tx.run("A", {"x": 1}, y=2) == "a result"
        tx.run("B")
    assert session.log == ["open", "begin, at most 2.5 s", "run A {'x': 1, 'y': 2}", "run B {}", "commit", "close"]


def test_the_transaction_is_rolled_back_if_the_loader_fails() -> None:
    session = FakeSession()

    def load() -> None:
        with transaction(session) as tx:
            tx.run("A")
            raise LookupError

    with pytest.raises(LookupError):
        load()
    assert session.log[-2:] == ["roll back", "close"]


def test_an_unreachable_graph_is_raised_even_if_the_loader_swallows_the_error() -> None:
    session = FakeSession(refuses=ConnectionError("it is down"))

    def load() -> str:
        with transaction(session) as tx:
            for _ in range(2):
                with pytest.raises(ConnectionError):
                    tx.run("A")
            return "made up"

    with pytest.raises(ConnectionError, match="it is down"):
        load()
    assert session.log == ["open", "begin, at most 2.5 s", "close"]


def test_a_closed_driver_is_raised_like_an_unreachable_graph() -> None:
    def closed() -> neo4j.Session:
        raise neo4j.exceptions.DriverError("Driver closed")

    def load() -> None:
        with ReadTransaction(closed, 2.5) as tx, pytest.raises(neo4j.exceptions.DriverError):
            tx.run("A")

    with pytest.raises(neo4j.exceptions.DriverError, match="Driver closed"):
        load()


def test_the_session_is_closed_even_if_the_commit_fails() -> None:
    session = FakeSession(commit_fails=ConnectionError("it has gone"))

    def load() -> None:
        with transaction(session) as tx:
            tx.run("A")

    with pytest.raises(ConnectionError, match="it has gone"):
        load()
    assert session.log[-2:] == ["commit", "close"]


def test_a_later_error_of_the_loader_takes_precedence_over_the_unreachable_graph() -> None:
    def load() -> None:
        with transaction(FakeSession(refuses=ConnectionError())) as tx:
            with pytest.raises(ConnectionError):
                tx.run("A")
            raise LookupError

    with pytest.raises(LookupError):
        load()


@pytest.mark.parametrize("has_bookmarks", [False, True])
def test_begin_shares_the_round_trip_of_the_first_query_unless_it_waits_for_bookmarks(has_bookmarks: bool) -> None:
    # By a private context of the driver: in a release without it, BEGIN takes a round trip of its own again.
    with neo4j.GraphDatabase.driver("bolt://127.0.0.1:1") as driver, driver.session() as real:
        session = FakeSession(pipelined_begin=real._pipelined_begin)
        with ReadTransaction(lambda: cast("neo4j.Session", session), 2.5, has_bookmarks=has_bookmarks) as tx:
            tx.run("A")
    assert ("begin in the next round trip" in session.log) is not has_bookmarks


@pytest.mark.parametrize(
    ("begin_seconds", "has_bookmarks", "waits"),
    [(1.2, True, False), (1.3, True, True), (1.3, False, False)],
    ids=["quick", "half of the limit", "no bookmarks"],
)
def test_a_begin_that_takes_half_of_the_limit_counts_as_waiting_for_bookmarks(
    monkeypatch: pytest.MonkeyPatch, begin_seconds: float, has_bookmarks: bool, waits: bool
) -> None:
    session, now = FakeSession(), iter([10.0, 10.0 + begin_seconds])
    monkeypatch.setattr(transactions, "monotonic_seconds", lambda: next(now))
    tx = ReadTransaction(lambda: cast("neo4j.Session", session), 2.5, has_bookmarks=has_bookmarks)
    assert not tx.waits_for_bookmarks  # nothing has been sent
    with tx:
        tx.run("A")
        assert tx.waits_for_bookmarks is waits


def test_a_refused_begin_counts_as_waiting_for_bookmarks() -> None:
    session = FakeSession(refuses=ConnectionError("no"))
    tx = ReadTransaction(lambda: cast("neo4j.Session", session), 2.5, has_bookmarks=True)
    with pytest.raises(ConnectionError):
        tx.run("A")
    assert tx.waits_for_bookmarks
