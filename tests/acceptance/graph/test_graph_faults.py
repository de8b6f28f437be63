"""Faults of a real Neo4j: the stale value is served, the worker survives, and the key is fresh soon after."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from api_client import EntryState, RefreshFailed
from refresher.embedded.neo4j_server import Neo4jServer
from tests.acceptance.graph.conftest import POOLS, Watched
from tests.support.fault_proxy import FaultProxy
from tests.support.graph_session import graph_session
from tests.support.timing import Measured
from tests.support.waiting import eventually

QUERY = "asks_twice"
DOWN_SECONDS = 10.0
MAX_PAUSE_SECONDS = 15.0
COOLING_SECONDS = 5.0
OTHER_LOADS_SECONDS = 5.0  # `goes_on` loads another key for each


def in_the_middle(watched: Watched, key: str) -> int:
    """Return the token of a stale key whose refresh has queried the graph once, and is held before the second query."""
    let_go_on(watched, key)
    watched.fresh(QUERY, key)  # which a busy machine may do at its second attempt
    watched.system.control.delete(f"gate:{key}")
    loads = watched.system.loads(key)
    token = watched.stale(QUERY, key)
    eventually(lambda: watched.system.loads(key) > loads, "the refresh has queried once")
    return token


def let_go_on(watched: Watched, key: str) -> None:
    watched.system.control.rpush(f"gate:{key}", *["open"] * 20)


@pytest.mark.parametrize("pool", POOLS)
def test_a_graph_connection_that_goes_silent_during_a_query_fails_only_that_attempt(
    behind_proxy: Watched, graph_proxy: FaultProxy, pool: str
) -> None:
    worker = behind_proxy.start(*POOLS[pool], CACHE_XFETCH_TIMEOUT="2s")
    token = in_the_middle(behind_proxy, "a")
    graph_proxy.hangs()
    let_go_on(behind_proxy, "a")
    # Neither ends by itself: the server would end the transaction, but can't report it.
    eventually(
        lambda: sum(behind_proxy.count_of(f"retried: {kind}") for kind in ("timeout", "graph_unavailable")),
        "the attempt has ended",
    )
    assert not behind_proxy.is_newer(QUERY, "a", token)
    graph_proxy.passes()
    behind_proxy.goes_on(worker, QUERY, "a", token)


@pytest.mark.parametrize("cut", [FaultProxy.cuts, FaultProxy.refuses], ids=["cut", "killed"])
def test_a_graph_connection_lost_during_a_query_fails_only_that_attempt(
    behind_proxy: Watched, graph_proxy: FaultProxy, cut: Callable[[FaultProxy], None]
) -> None:
    worker = behind_proxy.start()
    token = in_the_middle(behind_proxy, "a")
    cut(graph_proxy)
    let_go_on(behind_proxy, "a")
    eventually(lambda: behind_proxy.count_of("retried: graph_unavailable"), "the attempt has failed")
    assert behind_proxy.client.get_entry(QUERY, {"key": "a"}).token >= token
    graph_proxy.passes()
    behind_proxy.goes_on(worker, QUERY, "a", token)


def test_while_the_graph_is_down_retries_are_bounded_and_all_keys_are_fresh_soon_after(
    behind_proxy: Watched, graph_proxy: FaultProxy
) -> None:
    worker = behind_proxy.start("-c", "2")
    keys = [f"k{number}" for number in range(10)]
    tokens = {key: behind_proxy.fresh("misbehaves", key) for key in keys}
    graph_proxy.refuses()
    for key in keys:
        behind_proxy.client.invalidate("misbehaves", {"key": key})

    def served_stale() -> bool:
        return all(
            behind_proxy.client.get_entry("misbehaves", {"key": key}).state is EntryState.STALE for key in keys
        ) and behind_proxy.count_of("failed: graph_unavailable") >= len(keys)

    eventually(served_stale, "each has been abandoned once, and is served stale")
    # A claim allows 4 attempts, which are 3 retries: neither the driver's nor Celery's own multiply them.
    assert (
        behind_proxy.count_of("retried: graph_unavailable")
        <= 3 * behind_proxy.count_of("failed: graph_unavailable") + 3 * 10
    )
    graph_proxy.passes()
    for key in keys:
        behind_proxy.goes_on(worker, "misbehaves", key, tokens[key])


def test_a_wrong_graph_password_is_reported_at_once_and_causes_no_storm_of_attempts(
    behind_proxy: Watched, graph_proxy: FaultProxy
) -> None:
    worker = behind_proxy.start("-c", "2", NEO4J_PASSWORD="wrong", CACHE_COOLING="5m")
    with Measured() as took:
        for number in range(30):
            with pytest.raises(RefreshFailed) as caught:
                behind_proxy.client.get("misbehaves", {"key": f"k{number}"})
            assert (caught.value.kind, caught.value.attempts) == ("auth", 1)
    # It is counted after the waiters have been notified.
    eventually(lambda: behind_proxy.count_of("failed: auth") == 30, "each is counted")
    # One connection when the worker starts, and then one per process every five seconds.
    assert graph_proxy.accepted <= max(15, 1 + 2 * (1 + took.seconds / 5))
    assert worker.poll() is None
    assert "wrong" not in worker.log_file.read_text()


def test_a_missing_graph_database_is_a_permanent_configuration_error(behind_proxy: Watched) -> None:
    worker = behind_proxy.start(NEO4J_DATABASE="nosuch")
    with pytest.raises(RefreshFailed) as caught:
        behind_proxy.client.get(QUERY, {"key": "a"})
    assert (caught.value.kind, caught.value.attempts) == ("configuration", 1)
    assert worker.poll() is None


def test_a_query_past_its_timeout_is_ended_by_the_server_retried_once_and_abandoned(behind_proxy: Watched) -> None:
    worker = behind_proxy.start(CACHE_XFETCH_TIMEOUT="1s", CACHE_COOLING="5m")
    with pytest.raises(RefreshFailed) as caught:
        behind_proxy.client.get("slow_in_graph")
    assert (caught.value.kind, caught.value.attempts) == ("timeout", 2)
    assert worker.poll() is None


def test_after_a_graph_outage_during_refreshes_all_keys_are_fresh_within_the_promised_time(
    behind_proxy: Watched, graph_proxy: FaultProxy
) -> None:
    worker = behind_proxy.start("-c", "2", CACHE_COOLING=f"{COOLING_SECONDS:g}s", CACHE_XFETCH_RETRY_BACKOFF="2")
    tokens = {key: in_the_middle(behind_proxy, key) for key in ("a", "b")}
    graph_proxy.refuses()
    up_again_at = time.monotonic() + DOWN_SECONDS
    for key in tokens:
        let_go_on(behind_proxy, key)

    def served_stale_until_the_end() -> bool:
        for key, token in tokens.items():
            entry = behind_proxy.client.get_entry(QUERY, {"key": key})
            assert (entry.state, entry.token) == (EntryState.STALE, token)
        return time.monotonic() >= up_again_at

    eventually(served_stale_until_the_end, "the outage is over")
    assert behind_proxy.count_of("retried: graph_unavailable") >= len(tokens)
    graph_proxy.passes()
    # A pause between attempts may just have begun, or a backoff; lease, queue and load take another second.
    with Measured() as took:
        for key, token in tokens.items():
            behind_proxy.goes_on(worker, QUERY, key, token)
    took.at_most(max(MAX_PAUSE_SECONDS, COOLING_SECONDS) + 1 + OTHER_LOADS_SECONDS)


@pytest.fixture
def locks(neo4j_server: Neo4jServer) -> Iterator[None]:
    """Two nodes to be locked."""
    with graph_session(neo4j_server) as session:
        session.run("CREATE (:Lock {name: 'a'}), (:Lock {name: 'b'})").consume()
        yield
        session.run("MATCH (n:Lock) DETACH DELETE n").consume()


@pytest.mark.usefixtures("locks")
def test_two_loads_that_deadlock_in_the_graph_are_retried_and_both_commit(behind_proxy: Watched) -> None:
    worker = behind_proxy.start("-c", "2")
    keys = ("ab", "ba")
    for key in keys:
        behind_proxy.client.refresh("locks_two", {"key": key})
    eventually(lambda: all(map(behind_proxy.system.loads, keys)), "each has locked its first node")
    for key in keys:
        let_go_on(behind_proxy, key)
    for key in keys:
        assert behind_proxy.client.get("locks_two", {"key": key}) == key
    assert behind_proxy.count_of("retried: deadlock") >= 1
    assert not any(count_of.startswith("failed") for count_of in behind_proxy.all_counts())
    assert worker.poll() is None
