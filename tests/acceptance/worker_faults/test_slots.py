"""Keys of one query that hang, and keys of another: what the bound on slots leaves to the healthy ones."""

from __future__ import annotations

import threading

from api_client import CacheClient, EntryState
from tests.acceptance.conftest import System
from tests.support.waiting import eventually

SLOTS, SICK_KEYS, WELL_KEYS, ROUNDS = 4, 4, 10, 100
PACE_SECONDS = 0.1


def share_of_fresh_reads(system: System, client: CacheClient, kind: str) -> float:
    """Read healthy keys while others hang, or fail; which share of the healthy ones' reads is fresh."""
    sick = [{"key": f"{kind} {number}"} for number in range(SICK_KEYS)]
    well = [{"key": f"beside {kind} {number}"} for number in range(WELL_KEYS)]
    for params in sick:
        assert client.get("sick", params) == 1
    for params in well:
        assert client.get("well", params) == 1

    def under_way() -> bool:
        for params in sick:
            client.get_entry("sick", params)
        return sum(system.loads(params["key"]) for params in sick) >= SICK_KEYS + SLOTS - 1

    eventually(under_way, f"all but one slot are at keys that {kind}")
    pace, fresh = threading.Event(), 0
    for _ in range(ROUNDS):
        for params in sick:
            client.get_entry("sick", params)
        fresh += sum(client.get_entry("well", params).state is EntryState.FRESH for params in well)
        pace.wait(PACE_SECONDS)
    return fresh / (ROUNDS * WELL_KEYS)


def test_healthy_keys_beside_hanging_ones_are_as_fresh_as_beside_failing_ones(system_without_graph: System) -> None:
    system = system_without_graph
    system.env["REFRESHER_QUERIES"] = "tests.support.hanging_queries"
    worker = system.start_worker("-c", str(SLOTS))
    client = system.client()
    beside_failing = share_of_fresh_reads(system, client, "fails")
    beside_hanging = share_of_fresh_reads(system, client, "hangs")
    said = worker.log_file.read_text()
    assert "retry (no_slot) sick" in said
    assert beside_hanging >= beside_failing - 0.1
