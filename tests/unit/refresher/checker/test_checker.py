"""The checker: what each reader got, and when that breaks a guarantee."""

from __future__ import annotations

import pytest

from api_client import Entry, EntryState, RefreshState
from refresher.checker.oracle import Checker, Invalidated, Observation
from refresher.checker.reader import ObservationLog

TAG = Invalidated("Ada", version=3, generation=0, hard=False, returned_at=50.0)
SOFT = Invalidated("Ada", version=3, generation=100, hard=False, returned_at=50.0)
HARD = Invalidated("Ada", version=3, generation=100, hard=True, returned_at=50.0)


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
    assert sentence == "q('a'): token 7 is from before invalidation 9, and was read 1.000 s after it as fresh"
    assert [done.version for done in checker.last] == [2]


def seen(token: int, version: int, *, fresh: bool, began: float) -> Observation:
    return Observation("Ada", token, version, fresh, began)


@pytest.mark.parametrize(
    ("done", "observation", "words"),
    [
        (SOFT, seen(101, 2, fresh=True, began=60), "has version 2 where 3 was written"),
        (SOFT, seen(101, 2, fresh=False, began=40), "has version 2 where 3 was written"),
        (SOFT, seen(99, 2, fresh=True, began=50.5), "before invalidation 100, and was read 0.500 s after it as fresh"),
        (HARD, seen(99, 2, fresh=False, began=51), "although it was gone"),
        (HARD, seen(99, 2, fresh=True, began=51), "as fresh"),
        (TAG, seen(99, 2, fresh=True, began=51), "before invalidation for version 3"),
    ],
)
@pytest.mark.parametrize("seen_first", [True, False])
def test_a_broken_promise_is_reported_once(
    done: Invalidated, observation: Observation, words: str, seen_first: bool
) -> None:
    checker = Checker("profile")
    if seen_first:
        checker.observe(observation)
        checker.invalidated(done)
    else:
        checker.invalidated(done)
        checker.observe(observation)
    checker.observe(observation)
    assert len(checker.broken) == 1
    assert words in checker.broken[0]


@pytest.mark.parametrize(
    ("done", "observation"),
    [
        (SOFT, seen(101, 3, fresh=True, began=60)),
        (SOFT, seen(101, 4, fresh=True, began=60)),
        (SOFT, seen(99, 2, fresh=False, began=60)),  # stale, and marked as such
        (SOFT, seen(99, 2, fresh=True, began=49.9)),  # began before the invalidation had returned
        (HARD, seen(99, 2, fresh=False, began=49.9)),
        (HARD, Observation("Grace", 99, 0, fresh=True, last_began=60)),
        (TAG, seen(99, 3, fresh=True, began=60)),
        (TAG, Observation("Ada", 99, 2, fresh=True, last_began=50.9, allowed_seconds=1.0)),
    ],
)
def test_an_allowed_observation_is_not_reported(done: Invalidated, observation: Observation) -> None:
    checker = Checker("profile")
    checker.observe(observation)
    checker.invalidated(done)
    assert checker.broken == []


def test_of_equal_observations_the_latest_counts() -> None:
    checker = Checker("profile")
    checker.invalidated(SOFT)
    for began in (40.0, 60.0, 45.0):
        checker.observe(seen(99, 2, fresh=True, began=began))
    assert len(checker.broken) == 1
