"""Fleets whose network is split, with their histories checked.

One split with Sentinels; in `make test-long` six faults of a plan on each topology. PARTITIONS_SEED sets another seed.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.acceptance.partitions.checker import Bounds, check, seconds_until_fresh
from tests.acceptance.partitions.drawing import draw_violations
from tests.acceptance.partitions.events import events_in
from tests.acceptance.partitions.nemesis import CLOCK, Fault, Nemesis, plan
from tests.acceptance.partitions.topologies import MASTER, TOPOLOGIES, Fleet, Topology
from tests.support.waiting import MAX_WAIT_SECONDS, PATIENCE

SEED = int(os.environ.get("PARTITIONS_SEED", "1"))
FAULTS, FAULT_SECONDS = 6, (2.0, 10.0)
SETTLE_SECONDS = 10.0 * PATIENCE
"""Once the servers agree, all is fresh within: a breaker's pause (5 s), a claim's end (3 s), and loads."""
PAUSE_SECONDS = SETTLE_SECONDS + 4.0
ENOUGH = 100


def run(stack: ExitStack, topology: Topology, folder: Path, seed: int, faults: list[Fault]) -> None:
    """Let a fleet work while faults are injected, and check its history."""
    fleet = Fleet(stack, topology, folder, has_clocks=any(fault.beside == CLOCK for fault in faults))
    fleet.start_workers()
    fleet.start_readers(seed)
    fleet.start_client(topology.writer, seed)
    nemesis = Nemesis(fleet)
    nemesis.inject(faults, PAUSE_SECONDS)
    fleet.end_clients()
    nemesis.rest()
    bounds = Bounds(settle=SETTLE_SECONDS, stale=SETTLE_SECONDS, cache_hosts=topology.cache)
    verdict = check(events_in(folder), bounds)
    late = max(seconds_until_fresh(verdict.history))
    print(f"seed {seed}, {topology.name}: fresh {late:.1f} s after the servers agreed\n{verdict}")  # noqa: T201 - the run's figures, shown with -rA or -s
    drawn = draw_violations(verdict, folder)
    assert verdict.violations == [], f"{drawn}\n{verdict}"
    counts = Counter(event["kind"] for event in verdict.history.events)
    assert min(counts[kind] for kind in ("read", "invalidate", "load", "commit")) > ENOUGH, str(verdict)


@pytest.mark.promise(
    "Protocol",
    "Network splits: no rule breaks while a cut-off master keeps some clients and the others get a new one",
)
@pytest.mark.timeout(2 * MAX_WAIT_SECONDS)
def test_a_master_with_clients_of_its_own_is_replaced_by_the_others(stack: ExitStack, tmp_path: Path) -> None:
    topology = TOPOLOGIES["sentinel"]
    clients = {topology.writer, topology.readers[0], topology.workers[0], topology.graph, *topology.broker}
    split = Fault(
        "the master with some clients", frozenset({MASTER, *clients}), frozenset(topology.hosts) - clients, seconds=6
    )
    run(stack, topology, tmp_path, SEED, [split])


@pytest.mark.long
@pytest.mark.timeout(8 * MAX_WAIT_SECONDS)
@pytest.mark.parametrize("topology", TOPOLOGIES.values(), ids=TOPOLOGIES.keys())
def test_no_fault_breaks_a_rule(stack: ExitStack, topology: Topology, tmp_path: Path) -> None:
    run(stack, topology, tmp_path, SEED, plan(SEED, topology, FAULTS, FAULT_SECONDS))
