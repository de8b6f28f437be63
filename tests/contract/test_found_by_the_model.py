"""Interleavings found by the model of the lease record (tests/model) and by no other test, on a real Redis."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from api_client.protocol.keys import make_key
from api_client.protocol.lease import Call
from api_client.protocol.messages import RefreshItem, RefreshReason, item_for
from refresher.queries import Loaded
from tests.support.fake_refresher import Worker
from tests.support.lease_world import World

_numbers = itertools.count()


class RunHarness(Worker):
    """A worker on one real key. ``after`` maps a script to an action that is run once, after its next call."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = replace(world, key=make_key("cache", "q", {"n": next(_numbers)}, 1))
        self.after: dict[str, Callable[[], object]] = {}
        self.given: list[tuple[str, ...]] = []
        self.published: list[RefreshItem] = []

    def run(self, call: Call[Any]) -> Any:
        reply = self.world.store.run(call)
        self.after.pop(call.script, lambda: None)()
        return reply

    def load(self, _query: Any, calls: Any, _previous: Any, bookmarks: Any, timeout_seconds: float) -> list[Loaded]:
        self.given.append(tuple(bookmarks))
        return super().load(_query, calls, _previous, bookmarks, timeout_seconds)

    def _publish(self, item: RefreshItem) -> None:
        self.published.append(item)

    def refresh(self) -> None:
        """Claim the key as a reader, whatever its entry, and serve the message as a worker."""
        number = self.world.claim(f"claim-{len(self.given)}").claim_number
        self.refresher.refresh(item_for(self.world.key, number, RefreshReason.STALE))


@pytest.fixture
def harness(world: World) -> RunHarness:
    return RunHarness(world)


def test_after_a_hard_invalidation_a_run_triggers_no_load_that_another_run_has_done(harness: RunHarness) -> None:
    harness.after["acquire"] = lambda: harness.world.invalidate(hard=True)
    harness.after["commit"] = harness.refresh
    harness.refresh()
    assert len(harness.given) == 2
    assert harness.published == []
    assert harness.world.state() == "idle"


def test_after_a_hard_invalidation_a_run_triggers_a_load_that_no_other_run_has_done(harness: RunHarness) -> None:
    harness.after["acquire"] = lambda: harness.world.invalidate(hard=True)
    harness.refresh()
    (item,) = harness.published
    harness.refresher.refresh(item)
    assert len(harness.given) == 2
    assert harness.world.entry() is not None
    assert harness.world.state() == "idle"


@pytest.mark.promise("Protocol", "I3: the next load is given the bookmarks of an invalidation")
def test_the_bookmarks_of_an_invalidation_outlive_the_commit_that_it_led_to(harness: RunHarness) -> None:
    harness.world.invalidate(bookmarks=["b1"])
    harness.refresh()
    harness.refresh()
    harness.world.invalidate(bookmarks=["b2"])
    harness.refresh()
    assert harness.given == [("b1",), ("b1",), ("b1", "b2")]
