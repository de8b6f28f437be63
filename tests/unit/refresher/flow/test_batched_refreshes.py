"""Refreshes of one query that are loaded together: each ends as it would alone, whatever becomes of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from api_client.errors import CacheUnavailable
from api_client.protocol.lease import AcquireReply, AcquireStatus, Call, CommitStatus, RecordState
from api_client.protocol.messages import RefreshItem, RefreshReason
from api_client.protocol.payload import Packed
from api_client.transport.scripts import Until
from refresher.errors import LoadFailed
from refresher.flow.outcome import Ended, Outcome, OutcomeKind
from refresher.flow.policy import GRAPH_FAULTS, TIMEOUTS
from refresher.queries import Loaded, query
from tests.support.fake_refresher import ACQUIRED, NOW_US, Worker, failing

COMMITTED, RETRY, FAILED, SKIPPED = OutcomeKind.COMMITTED, OutcomeKind.RETRY, OutcomeKind.FAILED, OutcomeKind.SKIPPED


def item(n: int, **changes: Any) -> RefreshItem:
    return RefreshItem(query="many", params=f'{{"n":{n}}}', claim_number=7, reason=RefreshReason.STALE, **changes)


def held(status: AcquireStatus, state: RecordState) -> AcquireReply:
    return AcquireReply(status, state, 5.0, 0, NOW_US, 0, 0, (), b"")


class BatchWorker(Worker):
    """A refresher whose query takes eight calls at once. ``at_fault``: the numbers whose load fails, and with what."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        query("many", ttl=300, grace=60, batch=8, into=self.registry)(lambda tx, calls: calls)
        self.at_fault: dict[int, LoadFailed] = {}
        self.of_key: dict[tuple[str, str], Any] = {}
        self.loaded: list[list[int]] = []
        self.rounds: list[list[str]] = []
        self.begun: list[tuple[str, int]] = []
        self.stored: dict[str, Any] = {}
        self.tokens = iter(range(1_000, 10_000))

    def run_each(self, calls: Sequence[Call[Any]], *, until: Until = all) -> list[Any]:
        self.rounds.append([call.script for call in calls])
        self.stored |= {call.keys[0]: call.args[2] for call in calls if call.script == "commit"}
        return super().run_each(calls, until=until)

    def run(self, call: Call[Any]) -> Any:
        reply = self.of_key.get((call.script, call.keys[-1]))
        if reply is None:
            reply = super().run(call)
        if isinstance(reply, Exception):
            raise reply
        return replace(reply, token=next(self.tokens)) if reply is ACQUIRED else reply

    def load_begun(self, query: str, *, keys: int) -> None:
        self.begun.append((query, keys))

    def answer(self, script: str, n: int, reply: object) -> None:
        """Set Redis' reply to a step of one key."""
        self.of_key[script, item(n).key("cache").record] = reply

    def load(self, _query: Any, calls: Any, _previous: Any, bookmarks: Any, timeout_seconds: float) -> list[Loaded]:
        numbers = [call["n"] for call in calls]
        self.loaded.append(numbers)
        for number in numbers:
            if number in self.at_fault:
                raise self.at_fault[number]
        return [Loaded(f"value {number}", number) for number in numbers]

    def refresh(self, *numbers: int) -> dict[int, Ended]:
        ended = self.refresher.refresh_together([item(n) for n in numbers])
        return dict(zip(numbers, ended, strict=True))


@pytest.fixture
def worker() -> BatchWorker:
    return BatchWorker()


def kinds(ended: dict[int, Ended]) -> dict[int, OutcomeKind | type]:
    return {n: one.kind if isinstance(one, Outcome) else type(one) for n, one in ended.items()}


@pytest.mark.promise("Refreshing", "A batch is one message, one load, and one round trip for each step")
def test_a_batch_takes_one_load_and_one_round_trip_per_step(worker: BatchWorker) -> None:
    ended = worker.refresh(1, 2, 3)
    assert kinds(ended) == dict.fromkeys((1, 2, 3), COMMITTED)
    assert worker.loaded == [[1, 2, 3]]
    assert worker.begun == [("many", 3)]
    assert worker.rounds == [["acquire"] * 3, ["commit"] * 3]
    assert len(worker.held) == 3
    for n in (1, 2, 3):
        assert worker.stored[item(n).key("cache").entry].endswith(f"value {n}".encode())
    tokens = [one.token for one in ended.values() if isinstance(one, Outcome)]
    assert len(set(tokens)) == 3


def test_a_held_fresh_malformed_or_unanswered_refresh_does_not_affect_its_batch(worker: BatchWorker) -> None:
    worker.answer("acquire", 1, held(AcquireStatus.HELD, RecordState.RUNNING))
    worker.answer("acquire", 2, held(AcquireStatus.ALREADY_FRESH, RecordState.IDLE))
    worker.answer("acquire", 3, CacheUnavailable("gone"))
    ended = worker.refresh(1, 2, 3, 4)
    assert kinds(ended) == {1: SKIPPED, 2: SKIPPED, 3: CacheUnavailable, 4: COMMITTED}
    assert worker.loaded == [[4]]
    malformed = msgspec.structs.replace(item(5), params="no JSON")
    ends = worker.refresher.refresh_together([malformed, item(6)])
    assert [one.kind for one in ends if isinstance(one, Outcome)] == [SKIPPED, COMMITTED]


@pytest.mark.parametrize(
    ("reply", "end"),
    [
        (CommitStatus.SUPERSEDED, OutcomeKind.REJECTED),
        (CommitStatus.LOST, OutcomeKind.REJECTED),
        (CacheUnavailable("gone"), CacheUnavailable),
    ],
    ids=["superseded", "lost", "no redis"],
)
def test_a_commit_that_is_not_accepted_affects_only_its_own_key(worker: BatchWorker, reply: Any, end: Any) -> None:
    worker.answer("commit", 2, reply)
    assert kinds(worker.refresh(1, 2, 3)) == {1: COMMITTED, 2: end, 3: COMMITTED}


@pytest.mark.promise("Refreshing", "A key at fault fails alone, whatever it was loaded with")
@pytest.mark.parametrize("is_transient", [False, True])
def test_a_failed_batch_is_halved_until_the_faulty_key_is_alone(worker: BatchWorker, is_transient: bool) -> None:
    worker.at_fault[6] = failing("loader_error", transient=is_transient, most=1)
    ended = worker.refresh(*range(8))
    assert kinds(ended) == {n: FAILED if n == 6 else COMMITTED for n in range(8)}
    assert worker.loaded == [list(range(8)), [0, 1, 2, 3], [4, 5, 6, 7], [4, 5], [6, 7], [6], [7]]
    assert [letter.params for letter in worker.letters] == [{"n": 6}]


@pytest.mark.parametrize("kind", sorted(TIMEOUTS))
def test_a_batch_that_times_out_is_resent_key_by_key_without_counting_an_attempt(
    worker: BatchWorker, kind: str
) -> None:
    worker.at_fault[1] = failing(kind, transient=kind != "bookmark_timeout")
    ended = worker.refresh(1, 2)
    assert worker.loaded == [[1, 2]]
    for one in ended.values():
        assert (one.kind, one.again.attempt) == (RETRY, 1)
        assert one.again.ticket
    assert worker.calls["retry"].args[5] == 0  # failed attempts so far


@pytest.mark.parametrize("kind", sorted(GRAPH_FAULTS))
def test_a_fault_of_the_graph_counts_as_an_attempt_of_each_key(worker: BatchWorker, kind: str) -> None:
    worker.at_fault[1] = failing(kind)
    ended = worker.refresh(1, 2)
    assert worker.loaded == [[1, 2]], "halves would meet the same"
    assert kinds(ended) == {1: RETRY, 2: RETRY}
    assert [one.again.attempt for one in ended.values() if isinstance(one, Outcome) and one.again] == [2, 2]


def test_a_key_that_may_have_crashed_a_process_is_not_loaded_in_a_batch(worker: BatchWorker) -> None:
    worker.answer("acquire", 2, replace(ACQUIRED, attempts=1, has_overtaken=True))
    worker.answer("acquire", 3, replace(ACQUIRED, attempts=worker.settings.max_attempts))
    worker.answer("acquire", 4, replace(ACQUIRED, attempts=1))  # an attempt that only failed
    ended = worker.refresh(1, 2, 3, 4)
    assert worker.loaded == [[1, 4]]
    assert worker.diary.index(("hold",)) < worker.diary.index(("retry",)), "the others' leases are renewed meanwhile"
    assert kinds(ended) == {1: COMMITTED, 2: RETRY, 3: FAILED, 4: COMMITTED}
    second = ended[2]
    assert (second.why, second.again.attempt) == ("taken_over", 2)


def test_a_value_that_can_t_be_stored_fails_only_its_own_key(worker: BatchWorker) -> None:
    def encode(value: object, **_: Any) -> Packed:
        if value == "value 2":
            raise failing("too_large", transient=False)
        return Packed(b"\xa5value")

    worker.refresher = type(worker.refresher)(worker.settings, replace(worker.deps, encode=encode))
    ended = worker.refresh(1, 2, 3)
    assert kinds(ended) == {1: COMMITTED, 2: FAILED, 3: COMMITTED}
    assert worker.loaded == [[1, 2, 3]]


def test_large_values_are_committed_in_parts(worker: BatchWorker) -> None:
    small = BatchWorker(max_value_bytes=400)
    small.refresh(1, 2, 3, 4)
    assert [len(scripts) for scripts in small.rounds if "commit" in scripts] == [3, 1]
    assert kinds(worker.refresh(1, 2, 3, 4)) == dict.fromkeys((1, 2, 3, 4), COMMITTED)


def test_a_batch_is_loaded_after_the_bookmarks_of_all_its_keys(worker: BatchWorker) -> None:
    worker.answer("acquire", 1, replace(ACQUIRED, bookmarks=("b1", "b2"), token=5))
    worker.answer("acquire", 2, replace(ACQUIRED, bookmarks=("b2", "b3"), token=6))
    given: list[tuple[str, ...]] = []
    load = worker.load

    def seen(query: Any, calls: Any, _previous: Any, bookmarks: Any, timeout_seconds: float) -> list[Loaded]:
        given.append(tuple(bookmarks))
        return load(query, calls, _previous, bookmarks, timeout_seconds)

    worker.load = seen  # type: ignore[method-assign]
    worker.refresh(1, 2)
    assert given == [("b1", "b2", "b3")]


def test_a_worker_that_shuts_down_hands_back_all_refreshes_of_its_batch(worker: BatchWorker) -> None:
    def end(*_: Any) -> list[Loaded]:
        raise SystemExit

    worker.load = end  # type: ignore[method-assign]
    with pytest.raises(SystemExit):
        worker.refresh(1, 2, 3)
    assert worker.steps().count("hand_back") == 3


def test_refreshes_that_were_skipped_before_a_shutdown_are_reported_once(
    worker: BatchWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = replace(ACQUIRED, status=AcquireStatus.HELD)
    for number in (1, 2):
        worker.answer("acquire", number, held)
    reported: list[str] = []

    def skipped(_query: str, *, why: str) -> None:
        reported.append(why)
        if len(reported) == 2:
            raise SystemExit

    monkeypatch.setattr(worker, "skipped", skipped)
    with pytest.raises(SystemExit):
        worker.refresh(1, 2, 3)
    assert reported == ["running", "running"]
    assert worker.steps().count("hand_back") == 1, "what Redis has granted"
