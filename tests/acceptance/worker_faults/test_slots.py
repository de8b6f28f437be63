"""Keys of one query that hang, and keys of another: what the bound on slots leaves to the healthy ones."""

from __future__ import annotations

from api_client import CacheClient
from tests.acceptance.conftest import System
from tests.support.timing import Measured
from tests.support.waiting import eventually

SLOTS, SICK_KEYS, WELL_KEYS, LOADS = 4, 4, 10, 8


def time_of_loads(system: System, client: CacheClient, kind: str) -> Measured:
    """Read healthy keys while others hang, or fail, and measure a number of loads of each healthy one."""
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
    until = {params["key"]: system.loads(params["key"]) + LOADS for params in well}

    def all_loaded() -> bool:
        for params in sick:
            client.get_entry("sick", params)
        for params in well:
            client.get_entry("well", params)
        return all(system.loads(key) >= loads for key, loads in until.items())

    with Measured() as took:
        eventually(all_loaded, f"{LOADS} loads of each healthy key")
    return took


def test_healthy_keys_beside_hanging_ones_are_as_fresh_as_beside_failing_ones(system_without_graph: System) -> None:
    system = system_without_graph
    system.env["REFRESHER_QUERIES"] = "tests.support.hanging_queries"
    worker = system.start_worker("-c", str(SLOTS))
    client = system.client()
    beside_failing = time_of_loads(system, client, "fails")
    beside_hanging = time_of_loads(system, client, "hangs")
    said = worker.log_file.read_text()
    assert "retry (no_slot) sick" in said
    beside_hanging.at_most(1.1 * beside_failing.seconds)
