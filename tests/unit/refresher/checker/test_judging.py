"""The checker must see a broken promise: otherwise the demo's exit code means nothing."""

from __future__ import annotations

import pytest
from refresher.demo.reader_thread import ReaderThread, ReportBuffer
from refresher.demo.state import RunState

from api_client import CacheClient, Entry, EntryState, ReaderEvents, RefreshState, WaitTimeout
from refresher.checker.oracle import Checker, Invalidated, Observation

SOFT = Invalidated("Ada", version=3, generation=100, hard=False, returned_at=50.0)
HARD = Invalidated("Ada", version=3, generation=100, hard=True, returned_at=50.0)


def seen(token: int, version: int, *, fresh: bool, began: float) -> Observation:
    return Observation("Ada", token, version, fresh, began)


@pytest.mark.parametrize(
    ("done", "observation", "words"),
    [
        (SOFT, seen(101, 2, fresh=True, began=60), "has version 2 where 3 had been written"),
        (SOFT, seen(101, 2, fresh=False, began=40), "has version 2 where 3 had been written"),
        (SOFT, seen(99, 2, fresh=True, began=50.5), "began 0.500 s after invalidation 100 got the value 99"),
        (HARD, seen(99, 2, fresh=False, began=51), "although it was gone"),
        (HARD, seen(99, 2, fresh=True, began=51), "as fresh"),
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
        (SOFT, seen(99, 2, fresh=False, began=60)),  # stale, and said so
        (SOFT, seen(99, 2, fresh=True, began=49.9)),  # began before the invalidation had returned
        (HARD, seen(99, 2, fresh=False, began=49.9)),
        (HARD, Observation("Grace", 99, 0, fresh=True, last_began=60)),
    ],
)
def test_what_is_allowed_is_not_reported(done: Invalidated, observation: Observation) -> None:
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


class Scripted(CacheClient):
    """Answers from a list, and touches no server."""

    def __init__(self, answers: list[Entry[object] | Exception]) -> None:
        self.answers = answers
        self._events = ReaderEvents()

    def get_entry(self, *_: object, **__: object) -> Entry[object]:  # type: ignore[override]
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def entry(token: int, state: EntryState = EntryState.FRESH, refresh: RefreshState = RefreshState.NONE) -> Entry[object]:
    return Entry(
        value={"version": 7}, state=state, refresh=refresh, age=1.0, ttl_remaining=-2.0, delta=0.1, beta=1.0, degree=3,
        token=token, generation=0, bookmarks=(),
    )  # fmt: skip


class Reading:
    """One reading thread, driven read by read."""

    def __init__(self, *answers: Entry[object] | Exception) -> None:
        self.buffer = ReportBuffer()
        self.gone = False
        self.thread = ReaderThread(
            Scripted(list(answers)), self.buffer, [("profile", {"name": "Ada"})], [1.0], seed=1, interval_seconds=0.0,
            worker_is_gone=lambda: self.gone,
        )  # fmt: skip

    def read(self, times: int = 1) -> None:
        for _ in range(times):
            self.thread.read(0)


def test_a_token_that_goes_back_is_reported() -> None:
    reading = Reading(entry(10), entry(11), entry(10))
    reading.read(3)
    state = RunState(Checker("profile"))
    state.add(reading.buffer.take(), 1.0)
    assert len(state.checker.broken) == 1
    assert "went back from token 11 to 10" in state.checker.broken[0]


def test_reads_are_counted_by_how_they_ended() -> None:
    reading = Reading(
        entry(1, EntryState.MISS, RefreshState.TRIGGERED),
        entry(1),
        entry(1, EntryState.STALE, RefreshState.SUPPRESSED),
        WaitTimeout("profile", 5.0, "queued"),
    )
    reading.read(4)
    report = reading.buffer.take()
    tally = report.tally
    assert (tally.misses, tally.fresh, tally.stale, tally.failed, tally.reads) == (1, 1, 1, 1, 4)
    assert (tally.suppressed, tally.overdue_seconds) == (1, 2.0)
    assert (tally.at_once.count, tally.waited.count, tally.without_worker.count) == (2, 1, 0)
    assert len(report.failures) == 1
    assert "WaitTimeout" in report.failures[0]
    assert {(seen.token, seen.version) for seen in report.observations.values()} == {(1, 7)}


def test_what_grew_stale_without_a_worker_is_followed_until_it_is_newer() -> None:
    stale = entry(5, EntryState.STALE)
    reading = Reading(stale, stale, stale, entry(6))
    state = RunState(Checker("profile"))
    reading.gone = True
    reading.read(2)
    state.add(reading.buffer.take(), 1.0)
    assert state.tally.without_worker.count == 2
    assert state.still_stale() == {0}
    reading.gone = False
    reading.read()
    state.add(reading.buffer.take(), 2.0)
    assert state.still_stale() == {0}
    reading.read()
    state.add(reading.buffer.take(), 3.0)
    assert state.still_stale() == set()
    assert state.went_stale == {0}


def test_the_draws_follow_the_popularity() -> None:
    reads: list[int] = []
    thread = ReaderThread(
        Scripted([]), ReportBuffer(), [("profile", {"name": name}) for name in ("a", "b")], [0.9, 0.1], seed=3,
        interval_seconds=0.0, worker_is_gone=lambda: False,
    )  # fmt: skip
    thread.read = reads.append  # type: ignore[method-assign]
    thread.run(lambda: len(reads) >= 2_000)
    assert reads.count(0) == pytest.approx(1_800, abs=60)
