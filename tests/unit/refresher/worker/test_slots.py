"""The slots of a node that a query may hold: over threads and processes, after a kill, and without a free one."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from api_client import ConfigurationError
from api_client.protocol.messages import RefreshItem
from refresher.flow.outcome import OutcomeKind
from refresher.flow.ports import WorkerEvents
from refresher.queries import Registry, query
from refresher.worker.slots import NO_SLOT, WAIT_SECONDS, NodeSlots, QuerySlots

NOW = 100.0


class Skips(WorkerEvents):
    """Records what was skipped."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def skipped(self, query: str, *, why: str) -> None:
        self.seen.append((query, why))


@contextmanager
def holder(node: NodeSlots, name: str, bound: int, how_often: int = 1) -> Iterator[int]:
    """Run a process of the pool that holds slots; yield its id."""
    can_read, says = os.pipe()
    pid = os.fork()
    if pid == 0:
        taken = [node.acquire(name, bound, NOW) for _ in range(how_often)]
        os.write(says, bytes([sum(slot is not None for slot in taken)]))
        signal.pause()
    try:
        assert os.read(can_read, 1) == bytes([how_often])
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(can_read)
        os.close(says)


def opened(count: int) -> NodeSlots:
    node = NodeSlots()
    node.open(count)
    return node


def registered(**options: Any) -> Registry:
    queries = Registry()
    query("q", ttl=1, grace=1, into=queries, **options)(lambda tx: None)
    query("other", ttl=1, grace=1, into=queries)(lambda tx: None)
    return queries


@pytest.mark.promise("Refreshing", "A query that hangs leaves a slot of the worker to others")
@pytest.mark.parametrize(
    ("count", "slots", "bound"),
    [(4, None, 3), (2, None, 1), (1, None, None), (4, 1, 1), (4, 3, 3), (4, 4, None), (4, 10_000, None), (1, 1, None)],
)
def test_the_bound_is_all_slots_but_one_unless_the_query_says_otherwise(
    count: int, slots: int | None, bound: int | None
) -> None:
    assert opened(count).bound(slots) == bound


def test_without_a_pool_nothing_is_bounded() -> None:
    assert NodeSlots().bound(1) is None


def test_a_slot_is_held_by_one_load_across_processes_and_calls() -> None:
    node = opened(4)
    with holder(node, "q", 3), holder(node, "q", 3):
        slot = node.acquire("q", 3, NOW)
        assert node.acquire("q", 3, NOW) is None
        assert node.acquire("other", 3, NOW) is not None
        node.release("q", slot)
        assert node.acquire("q", 3, NOW) == slot


def test_the_slots_of_a_killed_process_are_free_at_once() -> None:
    node = opened(4)
    with holder(node, "q", 3, how_often=3):
        assert node.acquire("q", 3, NOW) is None
    assert [node.acquire("q", 3, NOW) is not None for _ in range(4)] == [True, True, True, False]


def test_a_process_forked_from_one_that_holds_a_slot_does_not_hold_it() -> None:
    node = opened(2)
    slot = node.acquire("q", 1, NOW)
    with holder(node, "other", 1):
        assert node.acquire("q", 1, NOW) is None
        node.release("q", slot)
        assert node.acquire("q", 1, NOW) is not None


def test_without_a_free_slot_an_item_is_requeued_unchanged_with_a_growing_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("refresher.flow.put_back.random", SimpleNamespace(randint=lambda _, longest: longest))
    node, events, now = opened(4), Skips(), [NOW]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    slots = QuerySlots(node, registered(slots=2), events, sleep=sleep, monotonic=lambda: now[0])
    item = RefreshItem(query="q", attempt=2, ticket="t")
    with slots.hold([item]) as first, slots.hold([item]) as second:
        assert (first, second) == ([], [])
        pauses = []
        for _ in range(5):
            with slots.hold([item]) as (deferred,):
                assert (deferred.kind, deferred.why, deferred.again) == (OutcomeKind.RETRY, NO_SLOT, item)
                pauses.append(deferred.pause_seconds)
        with slots.hold([RefreshItem(query="other")]) as other:
            assert other == []
    assert pauses == [2, 4, 8, 8, 8]
    assert events.seen == [("q", NO_SLOT)] * 5
    assert now[0] <= NOW + WAIT_SECONDS + 0.01  # while they may be quick; then a process is not kept from other queries
    with slots.hold([item]) as free:
        assert free == []


def test_a_slot_of_a_load_that_has_just_begun_is_waited_for() -> None:
    node = opened(2)
    slot = node.acquire("q", 1, NOW)
    slots = QuerySlots(
        node, registered(), WorkerEvents(), sleep=lambda _: node.release("q", slot), monotonic=lambda: NOW + 0.5
    )
    with slots.hold([RefreshItem(query="q")]) as free:
        assert free == []


def test_slots_that_another_process_has_held_for_long_are_not_waited_for() -> None:
    node, sleeps = opened(4), list[float]()
    slots = QuerySlots(node, registered(), WorkerEvents(), sleep=sleeps.append, monotonic=lambda: NOW + WAIT_SECONDS)
    with holder(node, "q", 3, how_often=3), slots.hold([RefreshItem(query="q")]) as deferred:
        assert deferred
    assert sleeps == []


def test_a_slot_is_given_back_however_the_load_ends() -> None:
    slots = QuerySlots(opened(2), registered(), WorkerEvents())

    def load(error: BaseException) -> None:
        with slots.hold([RefreshItem(query="q")]) as deferred:
            assert deferred == []
            raise error

    for error in (ValueError(), KeyboardInterrupt(), SystemExit()):
        with pytest.raises(type(error)):
            load(error)


def test_an_unregistered_query_is_not_bounded() -> None:
    with QuerySlots(opened(2), registered(), WorkerEvents()).hold([RefreshItem(query="unknown")]) as deferred:
        assert deferred == []


@pytest.mark.parametrize("wrong", [0, -1, 1.5, 2.0, True, "3", 10_001])
def test_a_wrong_bound_is_an_error_that_says_what_is_allowed(wrong: Any) -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"^slots of @query\('q'\)=.* is not valid: expected a whole number of slots, 1",
    ):
        registered(slots=wrong)
