"""Every interleaving of the scripts of workers, readers, invalidations and mishaps: exhaustive, not sampled.

Each order is played on a real Redis whose clock stands still but for the mishaps. After each step: one winner (I1), no
token goes back (I2), no invalidation is lost (I3), no key without a TTL (I6); and from each state on, even if all
actors died there, the key becomes fresh again (I4). `make test-long` adds scenes with more actors;
--log-cli-level=INFO shows the number of orders.
"""

from __future__ import annotations

import logging

import pytest

from tests.contract.explorer import Actor, Explorer, Mishaps, Reader, Worker, Writer
from tests.support.lease_world import ClockedWorld
from tests.support.waiting import MAX_WAIT_SECONDS

log = logging.getLogger(__name__)

A, B = Worker("A"), Worker("B")
HASTY_A, HASTY_B = Worker("A", ("commit", "retry")), Worker("B", ("commit",))
REPEATING_A, REPEATING_B = Worker("A", loses_replies=True), Worker("B", loses_replies=True)
# Each has two actors with all outcomes, or more actors, some of them hasty: with few outcomes.
SCENES: dict[str, tuple[Actor, ...]] = {
    "two workers whose replies are lost": (REPEATING_A, REPEATING_B),
    "two workers, an invalidation": (A, B, Writer()),
    "two readers, an invalidation": (Reader("R"), Reader("S"), Writer()),
}
FULL_SCENES: dict[str, tuple[Actor, ...]] = {
    "two workers, a mishap": (A, Worker("B", ("commit", "fail")), Mishaps()),
    "a worker, a reader, a mishap": (A, Reader("R"), Mishaps()),
    "two readers, an invalidation, a mishap": (Reader("R"), Reader("S"), Writer(), Mishaps()),
    "two workers, a reader, an invalidation": (HASTY_A, Worker("B", ("commit", "hand_back")), Reader("R"), Writer()),
}
LONG_SCENES: dict[str, tuple[Actor, ...]] = {
    "a worker that renews and repeats, an invalidation, a mishap": (
        Worker("A", renews=True, loses_replies=True), Writer(), Mishaps(),
    ),
    "two workers, an invalidation, a mishap": (HASTY_A, HASTY_B, Writer(), Mishaps()),
    "a worker, two invalidations, a mishap": (
        Worker("A", renews=True, loses_replies=True), Writer(times=2), Mishaps(),
    ),
    "a worker, a reader, two mishaps": (A, Reader("R"), Mishaps(most=2)),
    "a worker, a reader, an invalidation, a mishap": (A, Reader("R"), Writer(), Mishaps()),
    "two workers, an invalidation, two mishaps": (HASTY_A, HASTY_B, Writer(), Mishaps(most=2)),
    "two whole workers, a reader, an invalidation": (A, B, Reader("R"), Writer()),
    "three workers, an invalidation": (HASTY_A, HASTY_B, Worker("C", ("commit", "fail")), Writer()),
}  # fmt: skip
ALL = SCENES | FULL_SCENES | LONG_SCENES


def marks_of(scene: str, *, entry_there: bool) -> list[pytest.MarkDecorator]:
    if scene in LONG_SCENES or (scene in FULL_SCENES and not entry_there):
        return [pytest.mark.long, pytest.mark.timeout(60 * MAX_WAIT_SECONDS)]
    return [pytest.mark.timeout(8 * MAX_WAIT_SECONDS), *([pytest.mark.slow] if scene in FULL_SCENES else [])]


@pytest.mark.parametrize(
    ("scene", "entry_there"),
    [
        pytest.param(name, entry_there, marks=marks_of(name, entry_there=entry_there))
        for name in ALL
        for entry_there in (False, True)
    ],
)
def test_every_interleaving_keeps_every_invariant(clocked_world: ClockedWorld, scene: str, entry_there: bool) -> None:
    if entry_there:
        clocked_world.plant(clocked_world.clock.now_us - 1_000_000)
    explorer = Explorer(clocked_world, ALL[scene])
    orders = explorer.explore()
    log.info("%s: %d orders, %d states, %d steps", scene, orders, len(explorer.orders_from), explorer.steps)
    assert orders > 80
