"""Interleavings found by the model of the lease record (tests/model) and by no other test, on a real Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from api_client.protocol import payload
from api_client.protocol.lease import Call
from api_client.protocol.messages import RefreshItem, RefreshReason, item_for
from refresher.flow.ports import RefreshDeps, WorkerEvents
from refresher.flow.refresh import Refresher
from refresher.graph.failures import classify_error
from refresher.queries import Loaded, Registry, query
from refresher.settings import WorkerSettings
from tests.support.lease_steps import StepByStep
from tests.support.lease_world import World

T = TypeVar("T")


@dataclass(slots=True)
class RunHarness(StepByStep):
    """Workers on one real key. ``after`` maps a script to an action that is run once, after its next call."""

    world: World
    after: dict[str, Callable[[], object]] = field(default_factory=dict)
    loads: list[tuple[str, ...]] = field(default_factory=list)
    published: list[RefreshItem] = field(default_factory=list)

    def run(self, call: Call[T]) -> T:
        reply = self.world.store.run(call)
        self.after.pop(call.script, lambda: None)()
        return reply

    def load(
        self, _query: Any, _calls: Any, _previous: Any, bookmarks: Sequence[str], timeout_seconds: float
    ) -> list[Loaded]:
        assert timeout_seconds > 0
        self.loads.append(tuple(bookmarks))
        return [Loaded("value", 1)]

    def refresh(self) -> None:
        """Claim the key as a reader, whatever its entry, and serve the message as a worker."""
        number = self.world.claim(f"claim-{len(self.loads)}").claim_number
        self.serve(item_for(self.world.key, number, RefreshReason.STALE))

    def serve(self, item: RefreshItem) -> None:
        registry = Registry()
        query("query", ttl=300, grace=60, into=registry)(lambda tx, n: n)
        Refresher(
            WorkerSettings(namespace="test"),
            RefreshDeps(
                lease_steps=self, origin=self, encode=lambda value, **_: payload.Packed(payload.encode(value)),
                registry=registry, keep_leases=_held, publish=self.published.append, write_dead_letter=lambda *_: None,
                monotonic=lambda: 0.0, sleep=lambda _: None, events=WorkerEvents(), failure_of=classify_error,
                uniform=lambda: 0.5,
            ),
        ).refresh(item)  # fmt: skip


@contextmanager
def _held(_: object) -> Iterator[None]:
    yield


@pytest.fixture
def harness(world: World) -> RunHarness:
    return RunHarness(world)


def test_after_a_hard_invalidation_a_run_triggers_no_load_that_another_run_has_done(harness: RunHarness) -> None:
    harness.after["acquire"] = lambda: harness.world.invalidate(hard=True)
    harness.after["commit"] = harness.refresh
    harness.refresh()
    assert len(harness.loads) == 2
    assert harness.published == []
    assert harness.world.state() == "idle"


def test_after_a_hard_invalidation_a_run_triggers_a_load_that_no_other_run_has_done(harness: RunHarness) -> None:
    harness.after["acquire"] = lambda: harness.world.invalidate(hard=True)
    harness.refresh()
    (item,) = harness.published
    harness.serve(item)
    assert len(harness.loads) == 2
    assert harness.world.entry() is not None
    assert harness.world.state() == "idle"


@pytest.mark.promise("Protocol", "I3: the next load is given the bookmarks of an invalidation")
def test_the_bookmarks_of_an_invalidation_outlive_the_commit_that_it_led_to(harness: RunHarness) -> None:
    harness.world.invalidate(bookmarks=["b1"])
    harness.refresh()
    harness.refresh()
    harness.world.invalidate(bookmarks=["b2"])
    harness.refresh()
    assert harness.loads == [("b1",), ("b1",), ("b1", "b2")]
