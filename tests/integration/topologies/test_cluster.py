"""A cluster: routing to each key's node, moving slots, lost nodes; sync and async alike."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

import pytest
from redis.crc import key_slot

from api_client import CacheUnavailable, Entry, EntryState
from api_client.protocol.lease import invalidate
from api_client.transport.link import CacheLink, CacheNode
from api_client.transport.scripts import at_once
from api_client.transport.wire import Command
from refresher.embedded import RedisServer
from refresher.worker import redis_link
from refresher.worker.redis_link import RetryingLink
from tests.integration.topologies.conftest import (
    KEYS,
    MakeReader,
    NewKey,
    done,
    play_on,
    routes_of,
)
from tests.servers.redis_cluster import SLOTS, Cluster
from tests.servers.restarts import restart
from tests.support.any_reader import AnyReader, answer_of, client_of
from tests.support.internals import link_of
from tests.support.lease_world import claim_call
from tests.support.read_load import ReadLoad
from tests.support.timing import Measured
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

HOUR_US = 3_600_000_000
SILENT_SECONDS = 3.0


@pytest.fixture
def own_cluster(stack: ExitStack) -> Cluster:
    """A cluster that may lose nodes."""
    return Cluster(stack)


@pytest.fixture
def reader(make_reader: MakeReader, cluster: Cluster) -> AnyReader:
    return make_reader(cluster.url(), redis_timeout_seconds=MAX_WAIT_SECONDS)


def calls_of(cluster: Cluster, command: str) -> list[tuple[int, int]]:
    """Return how often each node was sent a command, and how often it refused."""
    counts = []
    for node in cluster.nodes:
        with cluster.client(node) as client:
            stats = client.info("commandstats").get(f"cmdstat_{command}", {"calls": 0, "rejected_calls": 0})
            counts.append((stats["calls"], stats["rejected_calls"]))
    return counts


def values(entries: list[Any]) -> list[Any]:
    return [entry.value if isinstance(entry, Entry) else type(entry).__name__ for entry in entries]


def test_each_read_is_one_command_at_the_key_s_own_node(reader: AnyReader, cluster: Cluster, new_key: NewKey) -> None:
    for n in KEYS:
        new_key(n).store_value(n)
    assert reader.get("q", {"n": 0}) == 0
    for node in cluster.nodes:
        cluster.execute(node, "CONFIG", "RESETSTAT")
    assert [reader.get("q", {"n": n}) for n in KEYS] == list(KEYS)
    assert values(reader.get_many([("q", {"n": n}) for n in KEYS])) == list(KEYS)
    own = [[cluster.node_of(new_key(n).key.entry) for n in KEYS].count(node) for node in cluster.nodes]
    assert min(own) > 0
    assert calls_of(cluster, "get") == [(2 * count, 0) for count in own]


@pytest.mark.alone
def test_a_batch_waits_for_all_silent_nodes_together(make_reader: MakeReader, cluster: Cluster) -> None:
    reader = make_reader(cluster.url(), redis_timeout_seconds=SILENT_SECONDS)
    calls = [("q", {"n": n}) for n in KEYS]
    assert values(reader.get_many(calls, timeout=0)) == ["WaitTimeout"] * len(KEYS)
    for node in cluster.nodes:
        os.kill(node.pid, signal.SIGSTOP)
    try:
        with Measured() as took:
            entries = reader.get_many(calls)
    finally:
        for node in cluster.nodes:
            os.kill(node.pid, signal.SIGCONT)
    assert values(entries) == ["CacheUnavailable"] * len(KEYS)
    took.at_most(2 * SILENT_SECONDS)  # the second is for the slots; one node after the other it would be three and that


def test_a_step_and_a_wait_go_to_the_key_s_own_node(
    reader: AnyReader, new_key: NewKey, pool: ThreadPoolExecutor
) -> None:
    reads = [pool.submit(reader.get, "q", {"n": n}, timeout=MAX_WAIT_SECONDS) for n in range(6)]
    for n in range(6):
        eventually(new_key(n).has_subscriber, "it listens, whichever node publishes")
        new_key(n).load(n)
    assert [read.result(MAX_WAIT_SECONDS) for read in reads] == list(range(6))
    assert all(reader.invalidate("q", {"n": n}).generation for n in range(6))


def test_steps_of_many_keys_are_run_on_all_nodes_at_once(cluster: Cluster, new_key: NewKey, stack: ExitStack) -> None:
    keys = [new_key(n) for n in KEYS]
    link = stack.enter_context(closing(CacheLink(cluster.url(), MAX_WAIT_SECONDS, MAX_WAIT_SECONDS)))
    claims = [claim_call(key.key, f"claim-{n}", seen=None, force=False, bookmarks=()) for n, key in enumerate(keys)]
    for _ in range(2):  # once with scripts that no node knows, once with those that each does
        replies = link.run_all(claims)
        assert [
            reply.claim_number == int(key.record()["claim_number"]) for reply, key in zip(replies, keys, strict=True)
        ]
        assert {key.state() for key in keys} == {"queued"}


def test_a_worker_s_steps_on_other_nodes_succeed_while_one_node_is_lost(
    own_cluster: Cluster, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_link, "TIMEOUT_SECONDS", MAX_WAIT_SECONDS)  # a lost node refuses
    new_key = play_on(own_cluster, stack)
    lost = min(own_cluster.nodes, key=lambda node: node.port)
    keys = [new_key(n).key for n in KEYS]
    begin_all, begun = CacheNode.begin_all, list[bool]()

    def recorded(node: CacheNode, commands: Sequence[Command]) -> Callable[[], list[Any]]:
        begun.append(False)
        finish = begin_all(node, commands)
        begun[-1] = True
        return finish

    monkeypatch.setattr(CacheNode, "begin_all", recorded)
    claims = [claim_call(key, f"claim-{n}", seen=None, force=False, bookmarks=()) for n, key in enumerate(keys)]
    link = stack.enter_context(closing(RetryingLink(own_cluster.url())))
    link.store.run_all(claims)
    lost.kill()
    replies = link.store.run_each(claims, until=at_once)
    failed = [isinstance(reply, CacheUnavailable) for reply in replies]
    assert failed == [own_cluster.node_of(key.record) is lost for key in keys]
    link.store.run_each(claims, until=at_once)
    assert begun[-3:] == [True, True, False], "those that answer do not wait for a connection to the lost one"
    assert True in failed
    assert False in failed


@pytest.mark.promise("Reading", "Slots that move within a cluster are followed")
def test_a_slot_that_has_moved_is_found_and_remembered(reader: AnyReader, cluster: Cluster, new_key: NewKey) -> None:
    key = new_key(1)
    key.store_value("moved")
    assert reader.get("q", {"n": 1}) == "moved"
    slot, source = key_slot(key.key.entry.encode()), cluster.node_of(key.key.entry)
    target = next(node for node in cluster.nodes if node is not source)
    cluster.move_slot(slot, source, target)
    try:
        for node in cluster.nodes:
            cluster.execute(node, "CONFIG", "RESETSTAT")
        assert [reader.get("q", {"n": 1}) for _ in range(5)] == ["moved"] * 5
        assert sum(rejected for _, rejected in calls_of(cluster, "get")) == 1
        assert values(reader.get_many([("q", {"n": 1})])) == ["moved"]
        assert reader.invalidate("q", {"n": 1}).generation
    finally:
        cluster.move_slot(slot, target, source)
    assert values(reader.get_many([("q", {"n": 1})])) == ["moved"]
    cluster.move_slot(slot, source, target)
    try:
        assert reader.invalidate("q", {"n": 1}).generation
    finally:
        cluster.move_slot(slot, target, source)


def test_keys_of_a_moving_slot_are_found_on_either_node(
    reader: AnyReader, cluster: Cluster, new_key: NewKey, pool: ThreadPoolExecutor
) -> None:
    key = new_key(2)
    key.store_value("on its way")
    slot, source = key_slot(key.key.entry.encode()), cluster.node_of(key.key.entry)
    target = next(node for node in cluster.nodes if node is not source)
    cluster.begin_move(slot, source, target)
    try:
        assert reader.get("q", {"n": 2}) == "on its way"
        cluster.move_keys(slot, source, target)
        assert reader.get("q", {"n": 2}) == "on its way"
        assert values(reader.get_many([("q", {"n": 2})])) == ["on its way"]
        # A step has two keys. The record is nowhere: the node that has one of the two replies TRYAGAIN.
        invalidated = pool.submit(reader.invalidate, "q", {"n": 2})
    finally:
        cluster.end_move(slot, target)
    try:
        assert eventually(lambda: done(invalidated.result) or done(lambda: reader.invalidate("q", {"n": 2})), "done")
        assert reader.get_entry("q", {"n": 2}).state is EntryState.STALE
    finally:
        cluster.move_slot(slot, target, source)


def test_each_node_s_times_are_read_by_its_own_clock(reader: AnyReader, cluster: Cluster, new_key: NewKey) -> None:
    assert reader.get("q", {"n": 0}, timeout=0, default="none") == "none"
    link_of(client_of(reader)).sync_clock()
    ahead = cluster.nodes[-1]
    clock = routes_of(reader).health_of((ahead.host, ahead.port)).clock
    clock.sync(clock.now_us() + HOUR_US, asked_at=time.monotonic())
    for n in KEYS:
        # Loaded 10 s ago, by the clock of its node.
        by_us = HOUR_US if cluster.node_of(new_key(n).key.entry) is ahead else 0
        new_key(n).store_value(n, age_seconds=10.0 - by_us / 1e6, ttl_seconds=600.0)
    singly = [reader.get_entry("q", {"n": n}) for n in KEYS]
    together = reader.get_many([("q", {"n": n}) for n in KEYS])
    for entry in [*singly, *together]:
        assert isinstance(entry, Entry)
        assert entry.state is EntryState.FRESH
        assert 9.0 < entry.age < 10.0 + MAX_WAIT_SECONDS


def test_a_lost_node_fails_only_its_own_keys_until_it_returns(
    make_reader: MakeReader, own_cluster: Cluster, stack: ExitStack
) -> None:
    reader, new_key = make_reader(own_cluster.url()), play_on(own_cluster, stack)
    for n in KEYS:
        new_key(n).store_value(n)
    lost = own_cluster.nodes[0]  # one that the URL names, too
    theirs = [n for n in KEYS if own_cluster.node_of(new_key(n).key.entry) is lost]
    calls = [("q", {"n": n}) for n in KEYS]
    expected = ["CacheUnavailable" if n in theirs else n for n in KEYS]
    with ReadLoad([reader] * 2, [("q", {"n": n}) for n in KEYS if n not in theirs]) as load:
        with own_cluster.client(lost) as client:
            client.save()
        lost.kill()
        for _ in range(10):
            assert values(reader.get_many(calls)) == expected
            assert isinstance(answer_of(reader.get, "q", {"n": theirs[0]}).error, CacheUnavailable)
        refused = answer_of(reader.invalidate, "q", {"n": theirs[0]})
        assert isinstance(refused.error, CacheUnavailable)
        restart(lost, keep_data=True)
        eventually(lambda: values(reader.get_many(calls)) == list(KEYS), "all are there again")
    assert load.errors() == []


def test_a_replica_that_takes_over_is_found(make_reader: MakeReader, stack: ExitStack) -> None:
    cluster = Cluster(stack, replicas=True)
    reader, new_key = make_reader(cluster.url()), play_on(cluster, stack)
    for n in KEYS:
        new_key(n).store_value(n)
    for node in cluster.nodes:
        with cluster.client(node) as client:
            client.set(next(f"{{{n}}}" for n in range(SLOTS) if cluster.node_of(f"{{{n}}}") is node), "marker")
            assert client.wait(1, int(MAX_WAIT_SECONDS * 1000)) == 1
    calls = [("q", {"n": n}) for n in KEYS]
    assert values(reader.get_many(calls)) == list(KEYS)
    lost = cluster.nodes[1]
    cluster.lose(lost)
    eventually(lambda: values(reader.get_many(calls)) == list(KEYS), "all are there again")
    theirs = next(n for n in KEYS if cluster.node_of(new_key(n).key.entry) is lost)
    generation = eventually(lambda: done(lambda: reader.invalidate("q", {"n": theirs}).generation), "invalidated")
    assert new_key(theirs).claim().number
    new_key(theirs).load("new")
    assert reader.get("q", {"n": theirs}, min_generation=generation, timeout=MAX_WAIT_SECONDS) == "new"


def test_without_any_node_each_call_raises_cache_unavailable_and_recovers(
    make_reader: MakeReader, own_cluster: Cluster
) -> None:
    for node in own_cluster.nodes:
        node.kill()
    reader = make_reader(own_cluster.url())
    calls: tuple[Callable[[], Any], ...] = (
        lambda: reader.get("q", {"n": 1}),
        lambda: reader.invalidate("q", {"n": 1}),
        lambda: reader.explain("q", {"n": 1}),
        lambda: values(reader.get_many([("q", {"n": 1})])),
    )
    for call in calls[:3]:
        assert isinstance(answer_of(call).error, CacheUnavailable)
    assert calls[3]() == ["CacheUnavailable"]
    for node in own_cluster.nodes:
        restart(node, keep_data=True)
    eventually(lambda: done(lambda: reader.invalidate("q", {"n": 1}).generation), "it heals")


@pytest.mark.parametrize("who", ["reader", "worker"])
def test_a_step_whose_script_a_node_has_forgotten_is_sent_again_as_one_command(
    reader: AnyReader, cluster: Cluster, who: str
) -> None:
    """Nothing can make the node forget the script again in between."""
    key = reader.key("q", {"n": 1})
    with (
        closing(RetryingLink(cluster.url())) as link,
        cluster.client(cluster.node_of(key.entry)) as node,
    ):
        step = invalidate(key, hard=False, bookmarks=(), retention_seconds=60)
        runs = {
            "reader": lambda: reader.invalidate("q", {"n": 1}, version=1).generation,
            "worker": lambda: link.store.run(step),
        }
        first = runs[who]()
        node.script_flush()
        node.config_resetstat()
        assert runs[who]() > first
        stats = node.info("commandstats")
    calls = {name: stats[f"cmdstat_{name}"]["calls"] for name in ("evalsha", "eval") if f"cmdstat_{name}" in stats}
    assert (calls, [name for name in stats if "script" in name]) == ({"evalsha": 1, "eval": 1}, [])


def connections_of(cluster: Cluster, node: RedisServer) -> int:
    with cluster.client(node) as client:
        return len(client.client_list(_type="normal"))


def test_connections_to_a_removed_cluster_node_are_closed(
    make_reader: MakeReader, cluster: Cluster, new_key: NewKey
) -> None:
    for n in KEYS:
        new_key(n).store_value(n)
    left, stays = cluster.nodes[2], cluster.nodes[1]  # the URL names the other two
    before = connections_of(cluster, left)
    reader = make_reader(cluster.url(), redis_timeout_seconds=MAX_WAIT_SECONDS)
    assert [reader.get("q", {"n": n}) for n in KEYS] == list(KEYS)
    assert connections_of(cluster, left) > before
    # As a reply to CLUSTER SLOTS would do.
    assert routes_of(reader).update_slots([[0, SLOTS - 1, [stays.host.encode(), stays.port]]], (stays.host, stays.port))
    eventually(lambda: connections_of(cluster, left) <= before, "its connections are closed")
    # It has its slots all the same, and is found again.
    assert [reader.get("q", {"n": n}) for n in KEYS] == list(KEYS)
    assert connections_of(cluster, left) > before
