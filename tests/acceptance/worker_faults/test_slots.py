"""Keys of one query that hang, and keys of another: what the bound on slots leaves to the healthy ones."""

from __future__ import annotations

import pytest

from api_client import CacheClient
from tests.acceptance.conftest import System
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

SLOTS, SICK_KEYS, WELL_KEYS, LOADS = 4, 4, 10, 8


def check_loads_beside_hanging_ones(system: System, client: CacheClient) -> None:
    """Read healthy keys while others hang, until each healthy one was loaded several times."""
    sick = [{"key": f"hangs {number}"} for number in range(SICK_KEYS)]
    well = [{"key": f"well {number}"} for number in range(WELL_KEYS)]
    for params in sick:
        assert client.get("sick", params) == 1
    for params in well:
        assert client.get("well", params) == 1

    def under_way() -> bool:
        for params in sick:
            client.get_entry("sick", params)
        return sum(system.loads(params["key"]) for params in sick) >= SICK_KEYS + SLOTS - 1

    eventually(under_way, "all but one slot are at keys that hang")
    held = sum(system.loads(params["key"]) for params in sick)
    until = {params["key"]: system.loads(params["key"]) + LOADS for params in well}

    def all_loaded() -> bool:
        for params in sick:
            client.get_entry("sick", params)
        for params in well:
            client.get_entry("well", params)
        return all(system.loads(key) >= loads for key, loads in until.items())

    eventually(all_loaded, f"{LOADS} loads of each healthy key")
    assert sum(system.loads(params["key"]) for params in sick) == held, (
        "the hanging ones kept their slots all the while"
    )


@pytest.mark.failure("W10")
def test_healthy_keys_are_loaded_while_all_slots_but_one_hang(system_without_graph: System) -> None:
    system = system_without_graph
    system.env["REFRESHER_QUERIES"] = "tests.support.hanging_queries"
    system.env["CACHE_XFETCH_TIMEOUT"] = f"{2 * MAX_WAIT_SECONDS}s"  # no limit ends a load that hangs
    worker = system.start_worker("-c", str(SLOTS))
    check_loads_beside_hanging_ones(system, system.client())
    assert "retry (no_slot) sick" in worker.log_file.read_text()
