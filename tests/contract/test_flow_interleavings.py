"""Every interleaving of the steps of two workers' own refresh flows, invalidations and lapses of leases.

The steps are those that leave the worker: each script, the load, the publication. Between them the product's own flow
runs. After each step the invariants are checked; at the end workers process the published messages, and the key must
be at rest: fresh, or as its failures left it.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec
import pytest

from api_client.protocol.keys import make_key
from api_client.protocol.messages import RefreshItem, RefreshReason, item_for
from refresher.flow.outcome import OutcomeKind
from tests.contract.stepped_flow import SETTINGS, Flow
from tests.support.lease_invariants import Watch, frozen_fields
from tests.support.lease_world import ClockedWorld
from tests.support.waiting import MAX_WAIT_SECONDS

log = logging.getLogger(__name__)

LAPSE_SECONDS = 10.0  # longer than a lease without renewals, shorter than the budget of a run
LONGER_THAN_ALL_SECONDS = 100.0
AS_STALE = OutcomeKind.COMMITTED_AS_STALE
INVALIDATIONS = {"soft", "hard"}
PARAMS = itertools.count()


@dataclass(frozen=True)
class Scene:
    """Outcomes of the two workers' loads, attempt by attempt, and the events beside them."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    beside: tuple[str, ...]
    attempt: int = 1  # of the messages: a later one's pause goes through the queue, the first one's is waited in place

    def __str__(self) -> str:
        return " | ".join("+".join(part) for part in (self.first, self.second, self.beside)) + f" | {self.attempt}"


VALUE, RETRY, FAILURE, SHUTDOWN = ("value",), ("transient", "value"), ("permanent",), ("shutdown",)
SCENES = [
    *(Scene(VALUE, VALUE, beside) for beside in [("soft",), ("hard",), ("lapse",), ("soft", "lapse")]),
    *(Scene(first, VALUE, ("lapse",), 2) for first in (RETRY, FAILURE, SHUTDOWN)),
    *(Scene(first, VALUE, ("soft",), 2) for first in (RETRY, FAILURE, SHUTDOWN)),
    Scene(RETRY, VALUE, ("hard",)),
]
LONG_SCENES = [
    Scene(first, second, beside, attempt)
    for first in (VALUE, RETRY, FAILURE, SHUTDOWN)
    for second in (VALUE, RETRY, FAILURE, SHUTDOWN)
    for beside in [("soft", "lapse"), ("hard", "lapse"), ("soft", "hard")]
    for attempt in (1, 2)
]
QUICK = 3
MARKED = [
    *((scene, []) for scene in SCENES[:QUICK]),
    *((scene, [pytest.mark.slow]) for scene in SCENES[QUICK:]),
    *((scene, [pytest.mark.long]) for scene in LONG_SCENES),
]


class FlowHarness:
    """One interleaving, from the beginning."""

    def __init__(self, world: ClockedWorld, scene: Scene) -> None:
        self.world, self.watch, self.beside = world, Watch(), list(scene.beside)
        self.queue: list[RefreshItem] = []
        number = world.claim("reader").number
        item = msgspec.structs.replace(item_for(world.key, number, RefreshReason.MISS), attempt=scene.attempt)
        self.flows = [Flow(world, self.watch, item, loads, self.queue) for loads in (scene.first, scene.second)]
        self.look()

    def look(self) -> None:
        self.watch.look(self.world.look())

    def choices(self) -> list[str]:
        """Return the flows that have a step left, and the next event beside them."""
        return [name for name, flow in zip("AB", self.flows, strict=True) if flow.pending] + self.beside[:1]

    def take_step(self, choice: str) -> None:
        if choice in {"A", "B"}:
            self.flows["AB".index(choice)].step()
        else:
            self.beside.pop(0)
            self._happens(choice)
        self.look()

    def _happens(self, what: str) -> None:
        if what == "lapse":
            self.world.pass_time(LAPSE_SECONDS)
        else:
            generation = self.world.invalidate(hard=what == "hard")
            self.watch.invalidated(generation, hard=what == "hard")

    def refresh_as_a_reader(self) -> None:
        """Claim the key, if its entry is not fresh, and let a worker refresh it."""
        entry = frozen_fields(self.world.look().raw_entry)
        if entry is None or entry[1] > entry[0]:
            reply = self.world.claim("the next reader", seen=entry[0] if entry else 0)
            self.queue.append(item_for(self.world.key, reply.number, RefreshReason.MISS))
            self.work_off()

    def is_at_rest(self) -> bool:
        """Return whether there is a fresh entry, and no record beside it."""
        seen = self.world.look()
        entry = frozen_fields(seen.raw_entry)
        return entry is not None and entry[1] <= entry[0] and seen.record == {}

    def work_off(self) -> list[Flow]:
        """Let workers process the published messages, one after the other."""
        done = []
        while self.queue:
            flow = Flow(self.world, self.watch, self.queue.pop(0), (), self.queue)
            while flow.pending:
                flow.step()
                self.look()
            done.append(flow)
        return done


def every_order(world: ClockedWorld, scene: Scene) -> Iterator[tuple[FlowHarness, Sequence[str]]]:
    """Play all orders: repeat the same beginning, then take the next choice, until none is left."""
    unplayed: list[list[str]] = [[]]
    while unplayed:
        order = unplayed.pop()
        harness = FlowHarness(replace(world, key=make_key(SETTINGS.namespace, "flow", {"n": next(PARAMS)}, 1)), scene)
        for choice in order:
            harness.take_step(choice)
        while choices := harness.choices():
            unplayed += [[*order, other] for other in choices[1:]]
            order = [*order, choices[0]]
            try:
                harness.take_step(choices[0])
            except AssertionError as error:
                error.add_note(f"in this order: {order}")
                raise
        yield harness, order


@pytest.mark.promise("Protocol", "Two refresh flows leave their key at rest, whatever their order")
@pytest.mark.timeout(8 * MAX_WAIT_SECONDS)
@pytest.mark.parametrize("scene", [pytest.param(scene, id=str(scene), marks=marks) for scene, marks in MARKED])
def test_every_interleaving_of_two_refresh_flows_leaves_the_key_at_rest(
    clocked_world: ClockedWorld, scene: Scene
) -> None:
    played = 0
    for harness, order in every_order(clocked_world, scene):
        played += 1
        followed = harness.work_off()
        outcomes = [outcome for flow in (*harness.flows, *followed) for outcome in flow.outcomes]
        details = f"{order}: {[str(outcome) for outcome in outcomes]}, {harness.world.record()}"
        has_failed = any(outcome.kind is OutcomeKind.FAILED for outcome in outcomes)
        met = [outcome for outcome in outcomes if outcome.kind is AS_STALE or outcome.why == "invalidated"]
        # One for each run that an invalidation hit, and for each run that was handed back.
        most = len(met) + (scene.first + scene.second).count("shutdown")
        assert len(followed) <= most, f"more follow-up refreshes than needed: {details}"
        if met and not has_failed and len(INVALIDATIONS & {*scene.beside}) == 1:
            assert harness.is_at_rest(), f"the refresh that an invalidation requires is missing: {details}"
        harness.world.pass_time(LONGER_THAN_ALL_SECONDS)
        harness.refresh_as_a_reader()
        assert harness.is_at_rest(), f"stuck: {details}"
    log.info("%s: %d orders", scene, played)
    assert played > 20
