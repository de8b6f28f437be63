"""Loads in place: how a load ends for the read that waits for it, and what interrupts it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from celery.exceptions import SoftTimeLimitExceeded

from api_client.errors import CacheUnavailable
from api_client.protocol.keys import make_key
from api_client.protocol.messages import RefreshItem, RefreshReason, item_for
from api_client.read.in_place import InPlaceEnd, Wanted
from refresher.errors import LoadFailed
from refresher.flow import nesting
from refresher.flow.budgets import NO_BUDGET
from refresher.flow.outcome import Outcome, OutcomeKind
from refresher.graph.failures import classify_error
from refresher.queries import Registry, query
from refresher.worker.in_place import InPlace, in_place_deps, interrupt_of
from tests.support.fake_refresher import Worker

KEYS = [make_key("cache", "q", {"n": number}, 1) for number in range(3)]
WANTED = [Wanted(key, 7) for key in KEYS]
COMMITTED = Outcome(OutcomeKind.COMMITTED, "q")
AGAIN = Outcome(OutcomeKind.RETRY, "q", why="deadlock", again=item_for(KEYS[0], 7, RefreshReason.MISS), pause_seconds=2)


class Loads:
    """Loads in place by a refresher that ends as a test wants, and a record of what they do."""

    def __init__(self, batch: int | None = None) -> None:
        self.ends: list[Any] = []
        self.loaded: list[int] = []
        self.sent: list[tuple[RefreshItem, int]] = []
        self.shown: list[Outcome] = []
        self.broker_error: Exception | None = None
        queries = Registry()
        query("q", ttl=300, grace=60, batch=batch, into=queries)(_batched if batch else lambda tx, n: n)
        self.in_place = InPlace(queries, lambda: self, self._send, self._show)  # type: ignore[arg-type, return-value]

    def refresh_together(self, items: Sequence[RefreshItem]) -> list[Any]:
        self.loaded.append(len(items))
        assert {(item.claim_number, item.reason) for item in items} == {(7, RefreshReason.MISS)}
        end = self.ends.pop(0) if self.ends else COMMITTED
        if isinstance(end, BaseException) and not isinstance(end, CacheUnavailable):
            raise end
        return [end] * len(items)

    def _send(self, item: RefreshItem, pause_seconds: int) -> None:
        if self.broker_error:
            raise self.broker_error
        self.sent.append((item, pause_seconds))

    def _show(self, _items: object, outcomes: Sequence[Outcome], seconds: float) -> None:
        assert seconds >= 0
        if self.broker_error:
            raise self.broker_error
        self.shown += outcomes


def _batched(tx: Any, calls: list[dict[str, int]]) -> list[int]:
    return [call["n"] for call in calls]


@pytest.mark.parametrize(
    ("outcome", "end"),
    [
        (COMMITTED, InPlaceEnd.ENDED),
        (Outcome(OutcomeKind.FAILED, "q", why="syntax"), InPlaceEnd.ENDED),
        (Outcome(OutcomeKind.REJECTED, "q", why="lost"), InPlaceEnd.ENDED),
        (Outcome(OutcomeKind.SKIPPED, "q", why="already_fresh"), InPlaceEnd.ENDED),
        (Outcome(OutcomeKind.SKIPPED, "q", why="cooling"), InPlaceEnd.ENDED),
        (Outcome(OutcomeKind.SKIPPED, "q", why="running"), InPlaceEnd.HELD),
        (Outcome(OutcomeKind.SKIPPED, "q", why="retrying"), InPlaceEnd.HELD),
        (replace(AGAIN, why=NO_BUDGET), InPlaceEnd.DEFERRED),
        (nesting.OutOfTime(), InPlaceEnd.DEFERRED),
    ],
    ids=str,
)
def test_the_end_of_a_load_for_the_read_that_waits(outcome: Any, end: InPlaceEnd) -> None:
    loads = Loads()
    loads.ends.append(outcome)
    assert loads.in_place.load(WANTED[:1], 5.0) == [end]
    assert loads.sent == [], "what is deferred is left to its claim"


def test_a_retry_is_sent_to_the_workers() -> None:
    loads = Loads()
    loads.ends.append(AGAIN)
    assert loads.in_place.load(WANTED[:1], 5.0) == [InPlaceEnd.ENDED]
    assert loads.sent == [(AGAIN.again, 2)]
    assert loads.shown == [AGAIN]


def test_a_broker_that_takes_nothing_fails_no_read(caplog: pytest.LogCaptureFixture) -> None:
    loads = Loads()
    loads.ends.append(AGAIN)
    loads.broker_error = ConnectionError("no broker")
    assert loads.in_place.load(WANTED[:1], 5.0) == [InPlaceEnd.ENDED]
    assert [record.getMessage() for record in caplog.records] == [
        "could not show a load in place: ConnectionError",
        "could not retry a load in place: ConnectionError",
    ]


@pytest.mark.parametrize(("batch", "loads_of"), [(None, [1, 1, 1]), (2, [2, 1]), (10, [3])])
def test_keys_of_a_query_are_loaded_together_where_its_loader_takes_a_batch(
    batch: int | None, loads_of: list[int]
) -> None:
    loads = Loads(batch)
    assert loads.in_place.load(WANTED, 5.0) == [InPlaceEnd.ENDED] * 3
    assert loads.loaded == loads_of


def test_what_does_not_begin_in_time_is_deferred() -> None:
    loads = Loads()
    assert loads.in_place.load(WANTED, 0.0) == [InPlaceEnd.DEFERRED] * 3
    assert loads.loaded == []


def test_redis_that_does_not_answer_is_the_reader_s_to_report() -> None:
    loads = Loads()
    loads.ends.append(CacheUnavailable("gone"))
    with pytest.raises(CacheUnavailable):
        loads.in_place.load(WANTED[:1], 5.0)


def test_only_registered_queries_are_loaded_in_place() -> None:
    in_place = Loads().in_place
    assert in_place.has(KEYS[0])
    assert not in_place.has(make_key("cache", "q", {"n": 1}, 2))
    assert not in_place.has(make_key("cache", "other", {}, 1))


def _as_the_graph_raises(error: BaseException) -> LoadFailed:
    failed = classify_error(error)
    failed.__cause__ = error
    return failed


@pytest.mark.parametrize("wrap", [lambda error: error, _as_the_graph_raises], ids=["itself", "classified"])
@pytest.mark.parametrize(
    ("error", "interrupts"),
    [
        (SoftTimeLimitExceeded(), True),
        (KeyboardInterrupt(), True),
        (GeneratorExit(), True),
        (SystemExit(3), False),  # a loader's own
        (ValueError("no"), False),
        (TimeoutError("slow"), False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_what_interrupts_the_calling_thread_is_no_failure_of_the_load(
    error: BaseException, wrap: Callable[[BaseException], BaseException], *, interrupts: bool
) -> None:
    assert interrupt_of(wrap(error)) is (error if interrupts else None)


@pytest.mark.parametrize("end", [SoftTimeLimitExceeded, KeyboardInterrupt])
def test_an_interrupted_load_is_handed_back_and_its_interrupt_goes_on(end: type[BaseException]) -> None:
    worker = Worker()
    worker.loads.append(_as_the_graph_raises(end()))
    refresher = worker.refresher.with_deps(in_place_deps(worker.deps))
    in_place = InPlace(worker.registry, lambda: refresher, lambda *_: None, lambda *_: None)
    with pytest.raises(end):
        in_place.load([Wanted(KEYS[1], 7)], 5.0)
    assert worker.steps() == ["acquire", "hold", "load", "hand_back", "publish"]


def test_a_load_within_another_one_takes_no_share_of_its_own() -> None:
    worker = Worker()
    asked: list[object] = []
    deps = in_place_deps(replace(worker.deps, share_of=lambda query, _: asked.append(query)))  # type: ignore[arg-type, return-value]
    deps.share_of(None, [])
    assert len(asked) == 1
    with nesting.within((KEYS[0],), 5.0):
        deps.share_of(None, [])
    assert len(asked) == 1
