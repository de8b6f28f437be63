"""Counts and checks of the demo's readers: if they missed a fault, the demo's exit code would mean nothing."""

from __future__ import annotations

import pytest

from api_client import CacheClient, CacheUnavailable, Entry, EntryState, ReaderEvents, RefreshState, WaitTimeout
from refresher.checker.oracle import Checker
from refresher.demo.counts import RunState
from refresher.demo.readers import Load, Reads


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
        self.gone = False
        self.client, self.tokens = Scripted(list(answers)), dict[int, int]()
        self.reads = Reads(Load([("profile", {"name": "Ada"})], [1.0], 0.0, seed=1), lambda: self.gone)

    def read(self, times: int = 1) -> None:
        for _ in range(times):
            self.reads.read(self.client, 0, self.tokens)


def test_a_token_that_goes_back_is_reported() -> None:
    reading = Reading(entry(10), entry(11), entry(10))
    reading.read(3)
    state = RunState(Checker("profile"))
    state.add(reading.reads.take(), 1.0)
    assert len(state.checker.broken) == 1
    assert "went back from token 11 to 10" in state.checker.broken[0]


def test_reads_are_counted_by_how_they_ended() -> None:
    reading = Reading(
        entry(1, EntryState.MISS, RefreshState.TRIGGERED),
        entry(1),
        entry(1, EntryState.STALE, RefreshState.SUPPRESSED),
        WaitTimeout("profile", 5.0, "queued"),
        CacheUnavailable("refused"),
    )
    reading.read(5)
    report = reading.reads.take()
    tally = report.tally
    assert (tally.misses, tally.fresh, tally.stale, tally.gave_up, tally.failed, tally.reads) == (1, 1, 1, 1, 1, 5)
    assert (tally.suppressed, tally.overdue_seconds) == (1, 2.0)
    assert (tally.at_once.count, tally.waited.count, tally.without_worker.count) == (2, 1, 0)
    assert len(report.failures) == 1
    assert "CacheUnavailable" in report.failures[0]
    assert {(seen.token, seen.version) for seen in report.observations.values()} == {(1, 7)}


def test_a_key_that_went_stale_without_a_worker_is_tracked_until_it_is_reloaded() -> None:
    stale = entry(5, EntryState.STALE)
    reading = Reading(stale, stale, stale, entry(6))
    state = RunState(Checker("profile"))
    reading.gone = True
    reading.read(2)
    state.add(reading.reads.take(), 1.0)
    assert state.tally.without_worker.count == 2
    assert state.still_stale() == {0}
    reading.gone = False
    reading.read()
    state.add(reading.reads.take(), 2.0)
    assert state.still_stale() == {0}
    reading.read()
    state.add(reading.reads.take(), 3.0)
    assert state.still_stale() == set()
    assert state.went_stale == {0}


def test_the_draws_follow_the_popularity() -> None:
    reads: list[int] = []
    threads = Reads(Load([("profile", {"name": name}) for name in ("a", "b")], [0.9, 0.1], 0.0, seed=3), lambda: False)
    threads.read = lambda _client, number, _tokens: reads.append(number)  # type: ignore[method-assign]
    threads.run(Scripted([]), 0, lambda: len(reads) >= 2_000)
    assert reads.count(0) == pytest.approx(1_800, abs=60)
