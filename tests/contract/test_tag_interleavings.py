"""Every interleaving of a worker's own refresh of a tagged query and an invalidation of its tag, on a real Redis.

Steps on the invalidation's own pending entry affect no worker's step: they are played with the step before them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from api_client.protocol.entry import decode_header
from api_client.protocol.keys import CacheKey, make_key, pending_tags_key
from api_client.protocol.lease import Call
from api_client.protocol.messages import RefreshItem, RefreshReason, item_for
from api_client.protocol.tags import PENDING_SECONDS, TagWalk
from refresher.flow import refresh as flow_module
from refresher.settings import WorkerSettings
from refresher.worker.tag_upkeep import TagUpkeep
from tests.contract.stepped_flow import SETTINGS, Flow
from tests.support.lease_invariants import Watch
from tests.support.lease_world import ClockedWorld

NUMBERS = itertools.count()
OF_ITSELF = {"tag_keep", "tag_finish"}
OLD, NEW = "old", "new"


class Unwatched(Watch):
    """A history that ignores runs, since it does not see the steps that invalidate the key."""

    def acquired(self, run: Any) -> None:
        pass

    def committed(self, *_: Any) -> None:
        pass


class Scene:
    """A key with a tag, a worker that refreshes it, and a client that changes the graph and invalidates the tag."""

    def __init__(self, world: ClockedWorld, *, is_cached: bool, hard: bool = False) -> None:
        number = next(NUMBERS)
        self.world = replace(world, key=make_key(SETTINGS.namespace, "tagged", {"n": number}, 1))
        self.tag, self.hard = f"tag-{number}", hard
        self.queue: list[RefreshItem] = []
        self.graph, self.has_returned = OLD, False
        if is_cached:
            self.flow = self._new_flow()
            self.flow.go_on()
        self.flow = self._new_flow()
        self.client = self._invalidates()

    @property
    def key(self) -> CacheKey:
        return self.world.key

    def _new_flow(self) -> Flow:
        number = self.world.claim(f"reader {next(NUMBERS)}").number
        return Flow(self.world, Unwatched(), item_for(self.key, number, RefreshReason.MISS), (), self.queue)

    def work(self) -> None:
        self.flow.graph = self.graph
        self.flow.step()
        self.check()

    def walk(self) -> Any:
        return TagWalk(self.key.namespace, retention_seconds=60).invalidate([self.tag], hard=self.hard)

    def _invalidates(self) -> Iterator[None]:
        self.graph = NEW
        yield
        rounds = self.walk()
        replies = None
        while True:
            try:
                calls = rounds.send(replies)
            except StopIteration:
                break
            replies = []
            for call in calls:
                replies.append(self.world.store.run(call))
                if call.script not in OF_ITSELF:
                    yield
        self.has_returned = True
        self.check()

    def value(self) -> tuple[str, bool] | None:
        """Return the entry's value, and whether it is fresh."""
        raw = self.world.client.get(self.key.entry)
        if raw is None:
            return None
        header = decode_header(raw, self.key.digest)
        return msgspec.msgpack.decode(raw[header.length :]), header.generation <= header.token

    def check(self) -> None:
        if self.has_returned:
            assert self.is_right(), f"{self.value()} after an invalidation that has returned"

    def is_right(self) -> bool:
        found = self.value()
        return found is None or found[0] == NEW or not (found[1] or self.hard)

    def choices(self) -> list[str]:
        """Return the actors that have a step left."""
        return ["worker"] * (self.flow.pending is not None) + ["client"] * (not self.has_returned)

    def take_step(self, actor: str) -> None:
        if actor == "worker":
            self.work()
        else:
            next(self.client, None)


def every_order(world: ClockedWorld, **scene: bool) -> Iterator[tuple[Scene, list[str]]]:
    """Play all orders: repeat the same beginning, then take the next choice, until none is left."""
    unplayed: list[list[str]] = [[]]
    while unplayed:
        order = unplayed.pop()
        played = Scene(world, **scene)
        for actor in order:
            played.take_step(actor)
        while choices := played.choices():
            unplayed += [[*order, other] for other in choices[1:]]
            order = [*order, choices[0]]
            played.take_step(choices[0])
        yield played, order


@pytest.mark.promise(
    "Protocol",
    "I3 over tags: a load in flight that an invalidation of its tag may have missed is stored as stale, or not at all",
)
@pytest.mark.parametrize(
    ("is_cached", "hard"),
    [
        pytest.param(False, False, id="missing-soft"),
        pytest.param(True, True, id="cached-hard", marks=pytest.mark.long),
        pytest.param(True, False, id="cached-soft", marks=pytest.mark.long),
        pytest.param(False, True, id="missing-hard", marks=pytest.mark.slow),
    ],
)
def test_in_every_interleaving_no_value_from_before_a_tag_invalidation_is_fresh(
    clocked_world: ClockedWorld, is_cached: bool, hard: bool
) -> None:
    orders = 0
    for scene, order in every_order(clocked_world, is_cached=is_cached, hard=hard):
        orders += 1
        assert scene.has_returned, order
        while scene.queue:
            flow = Flow(scene.world, Unwatched(), scene.queue.pop(), (), scene.queue)
            flow.graph = NEW
            flow.go_on()
        assert scene.is_right(), order
    assert orders > 100


def test_without_registration_a_tag_invalidation_would_miss_a_load_in_flight(
    clocked_world: ClockedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_module, "register", lambda *_: {})
    with pytest.raises(AssertionError, match="after an invalidation that has returned"):
        list(every_order(clocked_world, is_cached=False))


class Link:
    """A worker's link that has the world's store."""

    def __init__(self, world: ClockedWorld) -> None:
        self.store, self.client = world.store, world.client


def begun_and_killed(scene: Scene, calls: int) -> bool:
    """Run the first ``calls`` calls of an invalidation; return whether that completed it."""
    rounds = scene.walk()
    batch: list[Call[Any]] = next(rounds)
    replies: list[Any] = []
    for _ in range(calls):
        replies.append(scene.world.store.run(batch[len(replies)]))
        if len(replies) == len(batch):
            try:
                batch, replies = rounds.send(replies), []
            except StopIteration:
                return True
    return False


@pytest.mark.promise("Protocol", "An invalidation of tags whose process was killed is finished by a worker")
@pytest.mark.parametrize("hard", [False, True], ids=["soft", "hard"])
def test_a_tag_invalidation_killed_between_any_two_steps_is_finished_by_a_worker(
    clocked_world: ClockedWorld, hard: bool
) -> None:
    settings = WorkerSettings(namespace=SETTINGS.namespace)
    for calls in itertools.count(1):
        scene = Scene(clocked_world, is_cached=True, hard=hard)
        scene.graph = NEW
        is_over = begun_and_killed(scene, calls)
        pending = clocked_world.client.zcard(pending_tags_key(SETTINGS.namespace))
        clocked_world.pass_time(PENDING_SECONDS - 1)
        TagUpkeep(settings).finish_pending(Link(clocked_world))
        assert clocked_world.client.zcard(pending_tags_key(SETTINGS.namespace)) == pending, (
            "its client may still continue"
        )
        clocked_world.pass_time(2)
        TagUpkeep(settings).finish_pending(Link(clocked_world))
        assert not clocked_world.client.exists(pending_tags_key(SETTINGS.namespace))
        # After the tick alone there is no pending entry yet.
        assert scene.is_right() == (calls > 1), f"killed after {calls} calls"
        if is_over:
            break
    assert calls > 5
