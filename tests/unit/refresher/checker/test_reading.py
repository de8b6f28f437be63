"""The log of a watched reader: each observation once, with its last begin, and tokens that go back."""

from __future__ import annotations

from api_client import Entry, EntryState, RefreshState
from refresher.checker.oracle import Checker, Invalidated
from refresher.checker.reader import ObservationLog


def entry(token: int, version: int | None, state: EntryState = EntryState.FRESH) -> Entry[object]:
    return Entry(
        value=None if version is None else {"version": version}, state=state, refresh=RefreshState.NONE, age=1.0,
        ttl_remaining=2.0, delta=0.1, beta=1.0, degree=3, token=token, generation=0, bookmarks=(),
    )  # fmt: skip


def test_equal_results_are_one_observation_with_the_begin_of_the_last() -> None:
    log = ObservationLog("q")
    for began in (1.0, 2.0, 3.0):
        log.record("a", entry(7, 1), began)
    log.record("a", entry(7, 1, EntryState.STALE), 4.0)
    log.record("b", entry(7, 1), 5.0)
    assert [(seen.name, seen.fresh, seen.last_began) for seen in log.take()] == [
        ("a", True, 3.0), ("a", False, 4.0), ("b", True, 5.0),
    ]  # fmt: skip
    assert log.take() == []
    assert log.states == {EntryState.FRESH: 4, EntryState.STALE: 1}


def test_a_value_that_is_none_is_counted_and_has_no_version() -> None:
    log = ObservationLog("q")
    log.record("a", entry(7, None), 1.0)
    assert (log.take(), log.states.total()) == ([], 1)


def test_a_token_that_goes_back_is_reported_only_for_its_own_name() -> None:
    log, checker = ObservationLog("q"), Checker("q")
    for name, token in (("a", 7), ("b", 6), ("a", 8), ("a", 7)):
        log.record(name, entry(token, 1), 1.0)
    log.report(checker)
    assert checker.broken == ["for one reader q('a') went back from token 8 to 7"]


def test_logged_observations_are_checked_against_invalidations() -> None:
    log, checker = ObservationLog("q"), Checker("q")
    log.record("a", entry(7, 1), 2.0)
    log.report(checker)
    checker.invalidated(Invalidated("a", version=2, generation=9, hard=False, returned_at=1.0))
    (sentence,) = checker.broken
    assert sentence.startswith("a read of q('a') that began 1.000 s after invalidation 9 got the value 7")
    assert [done.version for done in checker.last] == [2]
