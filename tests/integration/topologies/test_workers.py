"""Real workers whose cache is behind Sentinels, or a cluster."""

from __future__ import annotations

import json
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest
from redis.crc import key_slot
from typer.testing import CliRunner

from api_client import CacheUnavailable, EntryState
from api_client.protocol.keys import make_key
from api_client.protocol.lease import CommitStatus, renew
from api_client.transport.redis_py import connect
from refresher.cli.commands import app
from refresher.embedded import ArcadeDbServer, RedisServer
from refresher.flow.dead_letters import DeadLetters
from refresher.worker.redis_link import RetryingLink
from tests.acceptance.conftest import System
from tests.servers.redis_cluster import Cluster
from tests.support.any_reader import KINDS, AnyReader
from tests.support.lease_world import LEASE_SECONDS, World
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

pytestmark = pytest.mark.usefixtures("published_once", "patient_commands")

KEYS = [{"key": f"key-{n}"} for n in range(8)]


def make_system(url: str, stack: ExitStack, redis_server: RedisServer, graph: ArcadeDbServer, folder: Path) -> System:
    system = System(stack, stack.enter_context(RedisServer.start()), redis_server, graph, folder)
    system.env |= {"CACHE_REDIS_URL": url}
    system.start_worker()
    return system


def refreshed(reader: AnyReader, query: str, params: dict[str, str], after: int) -> bool:
    """Whether a load that began later than ``after`` loads is served; a read of a stale value triggers one."""
    try:
        entry = reader.get_entry(query, params, timeout=5)
    except CacheUnavailable:
        return False
    return bool(entry.value["load"] > after)


def test_values_are_loaded_refreshed_and_dead_lettered_on_a_cluster(
    stack: ExitStack,
    shared_cluster: Cluster,
    redis_server: RedisServer,
    arcadedb: ArcadeDbServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared_cluster.empty()
    system = make_system(shared_cluster.url(), stack, redis_server, arcadedb, tmp_path)
    for kind in sorted(KINDS):
        reader = system.reader(kind)
        keys = [{"key": f"{kind}-{n}"} for n in range(6)]
        entries = reader.get_many([("long_lived", params) for params in keys], timeout=MAX_WAIT_SECONDS)
        assert [entry.value["load"] for entry in entries] == [1] * 6  # type: ignore[union-attr]
        for params in keys:
            reader.invalidate("long_lived", params)
            assert reader.get_entry("long_lived", params).state is EntryState.STALE
        for params in keys:
            eventually(partial(refreshed, reader, "long_lived", params, 1), "it is refreshed")
    with pytest.raises(Exception, match="syntax_error"):
        system.reader("sync").get("syntax_error", {}, timeout=MAX_WAIT_SECONDS)
    with connect(shared_cluster.url(), timeout_seconds=MAX_WAIT_SECONDS) as client:
        letters = DeadLetters(client, "cache")
        (letter,) = eventually(letters.newest, "a dead letter")
    assert letter.query == "syntax_error"
    for name in ("CACHE_REDIS_URL", "CACHE_BROKER_URL"):
        monkeypatch.setenv(name, system.env[name])
    explained = CliRunner().invoke(app, ["explain", "long_lived", "key=sync-1", "--json"])
    assert json.loads(explained.stdout)["state"] == "fresh", explained.output


@pytest.mark.parametrize("count", [1, 2], ids=["alone", "together"])
def test_a_worker_s_steps_go_on_while_a_slot_moves_to_a_new_node(stack: ExitStack, count: int) -> None:
    cluster = Cluster(stack)
    target = cluster.add_node(stack)
    key = make_key("test", "q", {"slot": "moves"}, 1)
    slot, source = key_slot(key.entry.encode()), cluster.node_of(key.entry)
    with closing(RetryingLink(cluster.url())) as link:
        world = World(link.client, link.store, key)
        world.plant(1)
        token = world.acquire(number=world.claim().number).token
        # Both keys of a step are there, and the slot is not: ASK leads to a node that has no slot yet, and no script.
        cluster.begin_move(slot, source, target)
        cluster.move_keys(slot, source, target)
        renewals = [renew(key, token=token, nonce=b"nonce--1", lease_seconds=LEASE_SECONDS)] * count
        assert link.store.run_all(renewals) == [LEASE_SECONDS] * count
        assert world.commit(token) is CommitStatus.ACCEPTED
        cluster.end_move(slot, target)
        assert world.acquire(b"nonce--2", number=world.claim().number).token > token
