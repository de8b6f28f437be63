"""Budgets over two worker nodes, measured in the loads themselves; and what becomes of a killed worker's share."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from api_client import CacheClient, EntryState
from api_client.protocol.budget import SHARE_SECONDS
from api_client.protocol.keys import budget_keys
from refresher.embedded.process import GuardedProcess
from tests.acceptance.conftest import System
from tests.support.budgeted_queries import AT_ONCE, BEGUN, HELD, MOST, RATE, SHARE_VARIABLE
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

PROCESSES = 3
KEYS = 24


@pytest.fixture
def fleet(system_without_graph: System) -> System:
    """A system for two nodes of three processes each."""
    system_without_graph.env |= {
        "REFRESHER_QUERIES": "tests.support.budgeted_queries", "CACHE_XFETCH_WORKERS": str(PROCESSES),
        SHARE_VARIABLE: f"{MAX_WAIT_SECONDS}",
    }  # fmt: skip
    return system_without_graph


def start(fleet: System, **changes: str) -> list[GuardedProcess]:
    return [fleet.start_worker(**changes) for _ in range(2)]


def read(client: CacheClient, query: str, count: int = KEYS) -> None:
    """Read missing keys; each of their values has to arrive."""
    with ThreadPoolExecutor(count) as pool:
        keys = [f"{query}-{number}" for number in range(count)]
        assert list(pool.map(lambda key: client.get(query, {"key": key}), keys)) == keys


def begun(fleet: System, kind: str) -> list[float]:
    """When the loads have begun, in seconds of the machine's own clock."""
    return sorted(float(line.split()[0]) for line in fleet.control.lrange(f"{BEGUN}:{kind}", 0, -1))


def keys_in_order(fleet: System, kind: str) -> list[str]:
    """The keys of the loads, as they have begun."""
    return [line.split()[1] for line in fleet.control.lrange(f"{BEGUN}:{kind}", 0, -1)]


def most(fleet: System, kind: str) -> int:
    """Return the maximum number of loads in progress at a time."""
    return int(fleet.control.zscore(f"{MOST}:{kind}", "most") or 0)


@pytest.mark.promise("Refreshing", "Loads in progress over all workers never exceed the budget")
@pytest.mark.parametrize(("query", "bound"), [("few", AT_ONCE), ("free", 3)])
def test_concurrent_loads_over_both_nodes_use_and_never_exceed_the_budget(
    fleet: System, query: str, bound: int
) -> None:
    nodes = start(fleet, CACHE_REFRESH_CONCURRENCY="3")
    read(fleet.client(), query)
    assert len(begun(fleet, query)) == KEYS, "each value was loaded once"
    assert most(fleet, query) == bound, "and all of the budget was used"
    processes = {line.split()[2] for line in fleet.control.lrange(f"{BEGUN}:{query}", 0, -1)}
    assert len(processes) > bound
    # Readers have their values, but messages published twice may still be under way, each with a share.
    assert [node.terminate(MAX_WAIT_SECONDS) for node in nodes] == [0, 0]
    left = [key for key in fleet.cache.scan_iter() if b":shares" in key and fleet.cache.zcard(key)]
    assert left == []


@pytest.mark.promise("Refreshing", "Loads of all workers begin at the budget's rate")
@pytest.mark.parametrize("kind", ["of the query", "of the namespace"])
def test_loads_over_both_nodes_begin_at_most_at_the_budgets_rate(fleet: System, kind: str) -> None:
    count, query, changes = round(2.5 * RATE), "paced", {}
    if kind == "of the namespace":
        query, changes = "free", {"CACHE_REFRESH_RATE": f"{RATE:g}"}
    start(fleet, **changes)
    read(fleet.client(), query, count)
    times = begun(fleet, query)
    assert len(times) == count
    took_seconds = times[-1] - times[0]
    # But for the burst of two; and each process may have been late with one load, which is close to the next then.
    more = 2 + 2 * PROCESSES
    assert (count - more) / took_seconds <= RATE, "never faster"
    in_any_half_second = max(sum(0 <= later - first < 0.5 for later in times) for first in times)
    assert in_any_half_second <= RATE / 2 + more, "nor in half a second"


@pytest.mark.promise("Refreshing", "The share of a killed worker goes to another")
def test_the_budget_share_of_a_killed_process_is_free_again_once_it_expires(fleet: System) -> None:
    """Both shares of the budget are held by processes that are killed in the middle of their loads."""
    del fleet.env[SHARE_VARIABLE]
    start(fleet)
    client = fleet.client()
    for key in ("a", "b"):
        fleet.control.sadd(HELD, key)
        client.refresh("few", {"key": key})
    eventually(lambda: len(begun(fleet, "few")) == AT_ONCE, "both are being loaded")
    shares, _ = budget_keys("cache", "few")
    assert fleet.cache.zcard(shares) == AT_ONCE
    killed = {line.split()[2] for line in fleet.control.lrange(f"{BEGUN}:few", 0, -1)}
    fleet.control.delete(HELD)
    for process in killed:
        os.kill(int(process), signal.SIGKILL)
    end_us = max((end for _, end in fleet.cache.zrange(shares, 0, -1, withscores=True)), default=0.0)
    assert end_us - fleet.now_us() <= SHARE_SECONDS * 1e6
    assert client.get("few", {"key": "c"}) == "c"


def test_misses_are_loaded_before_stale_keys_while_the_budget_is_exhausted(fleet: System) -> None:
    start(fleet)
    client = fleet.client()
    stale = [f"stale-{number}" for number in range(KEYS)]
    with ThreadPoolExecutor(KEYS) as pool:
        list(pool.map(lambda key: client.get("few", {"key": key}), stale))
    fleet.control.delete(f"{BEGUN}:few")
    fleet.control.sadd(HELD, *stale)
    for key in stale:
        client.invalidate("few", {"key": key})
        assert client.get_entry("few", {"key": key}).state is EntryState.STALE
    eventually(lambda: len(begun(fleet, "few")) >= AT_ONCE, "stale ones are loaded")
    missed = [f"missed-{number}" for number in range(4)]
    _, pace = budget_keys("cache", "few")
    opened: list[str] = []

    def all_are_read() -> bool:
        """Let one of the held loads end whenever they use all of the budget, and a miss will try again."""
        loads = [key for key in keys_in_order(fleet, "few") if key.startswith("stale")]
        if len(loads) - len(opened) == AT_ONCE and int(fleet.cache.hget(pace, "miss") or 0) > fleet.now_us():
            opened.append(loads[len(opened)])
            fleet.open_gate(opened[-1])
        return all(read.done() for read in reads)

    with ThreadPoolExecutor(len(missed)) as pool:
        reads = [pool.submit(client.get, "few", {"key": key}) for key in missed]
        eventually(all_are_read, "the misses are loaded")
    assert [read.result() for read in reads] == missed
    assert len(opened) < KEYS / 2, "most of the stale ones are still waiting"
    fleet.control.delete(HELD)
    for key in keys_in_order(fleet, "few"):
        fleet.open_gate(key)
    eventually(lambda: all(client.get_entry("few", {"key": key}).state is EntryState.FRESH for key in stale), "all are")
    assert most(fleet, "few") == AT_ONCE


def test_loads_go_on_after_redis_has_lost_the_budgets(fleet: System) -> None:
    start(fleet)
    client = fleet.client()
    fleet.control.sadd(HELD, "a")
    client.refresh("few", {"key": "a"})
    eventually(lambda: begun(fleet, "few"), "one is being loaded")
    fleet.cache.flushdb()
    read(client, "few")
    fleet.open_gate("a")
    assert most(fleet, "few") <= AT_ONCE + 1, "the one that Redis has forgotten, and the budget"
