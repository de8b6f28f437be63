"""Behind Sentinels and on a cluster, with the users of deploy/redis: each may do its work, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import redis
from redis.crc import key_slot
from typer.testing import CliRunner

from api_client import CacheUnavailable
from refresher.cli.commands import app
from refresher.embedded import ArcadeDbServer, RedisServer
from tests.acceptance.conftest import System
from tests.integration.topologies.conftest import done
from tests.servers.redis_with_users import ClusterWithUsers, SentinelsWithUsers
from tests.support.any_reader import KINDS, AnyReader
from tests.support.redis_users import NOBODY, OWN_SCRIPT, Command, UsersRedis
from tests.support.requirements import skip_or_fail
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

pytestmark = pytest.mark.usefixtures("patient_commands", "published_once")
Servers: TypeAlias = ClusterWithUsers | SentinelsWithUsers
KEYS = [{"key": f"key-{n}"} for n in range(6)]
# No component needs these; each would expose all data, or break the servers.
ANY_NODE: tuple[Command, ...] = (
    ("CLUSTER", "NODES"), ("CLUSTER", "SHARDS"), ("CLUSTER", "MEET", "h", 1), ("CLUSTER", "FORGET", "x"),
    ("CLUSTER", "RESET"), ("CLUSTER", "FAILOVER"), ("CLUSTER", "ADDSLOTS", 1), ("CLUSTER", "DELSLOTS", 1),
    ("CLUSTER", "SETSLOT", 1, "STABLE"), ("CLUSTER", "REPLICATE", "x"), ("CLUSTER", "GETKEYSINSLOT", 1, 1),
    ("FAILOVER",), ("SSUBSCRIBE", "x"), ("SPUBLISH", "x", "x"), ("READONLY",), ("CONFIG", "RESETSTAT"),
)  # fmt: skip
ANY_SENTINEL: tuple[Command, ...] = (
    ("SENTINEL", "FAILOVER", "x"), ("SENTINEL", "RESET", "*"), ("SENTINEL", "REMOVE", "x"), ("SENTINEL", "FLUSHCONFIG"),
    ("SENTINEL", "MONITOR", "x", "127.0.0.1", 1, 1), ("SENTINEL", "SET", "x", "quorum", 1),
    ("SENTINEL", "CONFIG", "GET", "*"), ("SENTINEL", "REPLICAS", "x"), ("SENTINEL", "SENTINELS", "x"),
    ("SENTINEL", "SIMULATE-FAILURE", "crash-after-election"), ("ACL", "LIST"), ("SHUTDOWN",), ("CLIENT", "LIST"),
    ("CLIENT", "KILL", "TYPE", "normal"), ("SUBSCRIBE", "+switch-master"), ("PSUBSCRIBE", "*"),
    ("PUBLISH", "elsewhere", "x"),
)  # fmt: skip


class SystemOfUsers(System):
    """A system whose cache is behind Sentinels, or a cluster, with a worker; each component has its user."""

    def __init__(
        self, stack: ExitStack, servers: Servers, control: RedisServer, graph: ArcadeDbServer, folder: Path
    ) -> None:
        super().__init__(stack, servers.broker, control, graph, folder)
        self.servers = servers
        self.env |= {"CACHE_XFETCH_RETRY_ENABLED": "false"}
        self.start_worker("-c", "1", **self.as_user("worker", "worker"))

    def as_user(self, on_the_cache: str, on_the_broker: str = "publisher") -> dict[str, str]:
        broker = self.servers.broker.url_of(on_the_broker, self.servers.passwords["broker", on_the_broker])
        return {"CACHE_REDIS_URL": self.servers.url_of(on_the_cache), "CACHE_BROKER_URL": broker}

    def reader_as(self, user: str, kind: str) -> AnyReader:
        return self.reader(kind, **self.as_user(user))

    def command(self, *arguments: str, exit_code: int | None = 0, user: str = "operator") -> Any:
        """Run a command as a user of the cache, and operator of the broker; return its JSON."""
        ran = CliRunner().invoke(app, [*arguments, "--json"], env={**self.env, **self.as_user(user, "operator")})
        assert exit_code in {None, ran.exit_code}, ran.output
        return json.loads(ran.stdout)


def servers_of(name: str, stack: ExitStack, folder: Path) -> Servers:
    if name == "cluster":
        return ClusterWithUsers(stack, folder, replicas=True)
    return SentinelsWithUsers(stack, folder, sentinels=3)


@pytest.fixture(scope="module", params=["cluster", "sentinels"])
def running(
    request: pytest.FixtureRequest, redis_server: RedisServer, arcadedb: ArcadeDbServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SystemOfUsers]:  # fmt: skip
    with redis.Redis.from_url(redis_server.url()) as client:
        if int(str(client.info()["redis_version"]).partition(".")[0]) < 7:
            skip_or_fail("this redis-server is older than 7.0: it has neither read-only keys nor selectors")
    with ExitStack() as stack:
        servers = servers_of(request.param, stack, tmp_path_factory.mktemp("users"))
        yield SystemOfUsers(stack, servers, redis_server, arcadedb, tmp_path_factory.mktemp("system"))


@pytest.fixture
def system(running: SystemOfUsers) -> Iterator[SystemOfUsers]:
    """The system; a test fails if it was denied a command that it did not expect."""
    yield running
    denied = running.servers.denied()
    running.servers.forget_denied()
    assert denied == set()


def is_listened_to(servers: Servers, channel: str) -> bool:
    """Whether somebody is subscribed to a channel, at any of the servers."""
    for node in servers.nodes:
        with servers.client(node) as client:
            if client.pubsub_numsub(channel)[0][1]:
                return True
    return False


def test_the_reader_s_user_may_read_batches_refresh_and_be_notified(
    system: SystemOfUsers, kind: str, pool: ThreadPoolExecutor
) -> None:
    reader = system.reader_as("reader", kind)
    keys = [{"key": f"{kind}-{params['key']}"} for params in KEYS]
    entries = reader.get_many([("long_lived", params) for params in keys], timeout=MAX_WAIT_SECONDS)
    assert [entry.value["load"] for entry in entries] == [1] * len(keys)  # type: ignore[union-attr]
    assert reader.refresh("long_lived", keys[0], wait=True, timeout=MAX_WAIT_SECONDS)
    assert reader.get("long_lived", keys[0])["load"] == 2
    assert reader.explain("long_lived", keys[0]).state == "fresh"
    assert system.command("explain", "long_lived", f"key={keys[0]['key']}", user="reader")["refreshed_by"] == "ttl"
    held = {"key": f"{kind}-held", "hold": f"{kind}-held"}
    read = pool.submit(reader.get, "long_lived", held, timeout=MAX_WAIT_SECONDS)
    channel = reader.key("long_lived", held).channel
    eventually(lambda: is_listened_to(system.servers, channel), "the waiter is subscribed")
    system.open_gate(held["hold"])
    assert read.result(MAX_WAIT_SECONDS)["load"] == 1


def test_the_operator_s_user_may_explain_examine_retry_and_drop(system: SystemOfUsers) -> None:
    reader = system.reader_as("reader", "sync")
    for params in KEYS[:2]:
        system.control.rpush(f"script:{params['key']}", "fail")
        reader.refresh("long_lived", params)
    letters = eventually(lambda: len(found := system.command("dead", "list")) == 2 and found, "both letters")
    assert system.command("dead", "show", letters[0]["id"])["params"] in KEYS
    (retried,) = system.command("dead", "retry", letters[0]["id"])
    assert retried["result"] == "refreshed"
    (dropped,) = system.command("dead", "drop", letters[1]["id"])
    assert (dropped["result"], dropped["ended_pause"]) == ("dropped", True)
    assert system.command("dead", "list") == []
    key = letters[0]["params"]["key"]
    assert system.command("explain", "long_lived", f"key={key}")["state"] == "fresh"
    assert system.command("status", "--once")
    levels = {one["check"]: one["level"] for one in system.command("doctor", exit_code=None)["findings"]}
    checks = ("rights", "cache", "clock", "notifications", "lease steps", "readers", "dead letters", "broker")
    assert {check: levels[check] for check in checks} == dict.fromkeys(checks, "ok")


def test_users_can_read_and_invalidate_while_a_slot_moves_and_afterwards(system: SystemOfUsers) -> None:
    cluster = system.servers
    if not isinstance(cluster, ClusterWithUsers):
        return
    readers = [system.reader_as("invalidator", kind) for kind in sorted(KINDS)]
    params = {"key": "moved"}
    assert [reader.get("long_lived", params, timeout=MAX_WAIT_SECONDS)["load"] for reader in readers] == [1, 1]
    entry = readers[0].key("long_lived", params).entry
    slot, source = key_slot(entry.encode()), cluster.node_of(entry)
    target = next(node for node in cluster.nodes if node is not source)
    cluster.begin_move(slot, source, target)
    try:
        cluster.move_keys(slot, source, target)
        assert [reader.get("long_lived", params)["load"] for reader in readers] == [1, 1]  # by ASKING
    finally:
        cluster.end_move(slot, target)
    try:
        for load, reader in enumerate(readers, start=2):
            assert reader.invalidate("long_lived", params).generation
            assert reader.get("long_lived", params, fresh=True, timeout=MAX_WAIT_SECONDS)["load"] == load
    finally:
        cluster.move_slot(slot, target, source)


def test_each_user_is_denied_what_its_component_does_not_need_on_nodes_and_sentinels(running: SystemOfUsers) -> None:
    servers, key = running.servers, "cache:e1:{q:1:0}"
    on_the_nodes = {
        "replica": (
            *NOBODY, OWN_SCRIPT, *ANY_NODE, ("GET", key), ("SET", key, "x"), ("INFO",), ("CLUSTER", "SLOTS"), ("SYNC",),
        ),
        "sentinel": (
            *(command for command in NOBODY if command[:2] != ("CLIENT", "KILL")), OWN_SCRIPT, *ANY_NODE, ("GET", key),
            ("SET", key, "x"), ("DEL", key), ("PSYNC", "?", -1), ("CLUSTER", "SLOTS"), ("PUBLISH", "cache:n1:x", "x"),
        ),
        **dict.fromkeys(("reader", "invalidator", "worker", "operator"), (*ANY_NODE, ("PSYNC", "?", -1), ("ROLE",))),
    }  # fmt: skip
    assert allowed(servers.nodes[0], "cache", on_the_nodes, servers) == []
    if isinstance(servers, SentinelsWithUsers):
        on_a_sentinel = {
            "finder": (*ANY_SENTINEL, ("SENTINEL", "IS-MASTER-DOWN-BY-ADDR", "h", 1, 0, "*"), ("INFO",)),
            "peer": (*ANY_SENTINEL, ("SENTINEL", "MASTERS"), ("INFO",)),
        }
        assert allowed(servers.sentinels[0], "sentinel", on_a_sentinel, servers) == []
    servers.forget_denied()


def allowed(
    server: RedisServer, of: str, denied: Mapping[str, Sequence[Command]], servers: Servers
) -> list[tuple[str, Command]]:
    """Return the commands that users may run though they should be denied."""
    assert isinstance(server, UsersRedis)
    return [
        (user, command)
        for user, commands in denied.items()
        if (of, user) in servers.passwords
        for command in commands
        if not server.refuses(user, servers.passwords[of, user], command)
    ]


def test_a_missing_permission_to_find_the_server_is_named(running: SystemOfUsers) -> None:
    servers = running.servers
    is_cluster = isinstance(servers, ClusterWithUsers)
    users, right = (("reader", "operator"), "cluster|slots") if is_cluster else (("finder",), "sentinel|masters")
    with ExitStack() as given_back:
        for server in servers.nodes if is_cluster else servers.sentinels:
            for user in users:
                servers.execute(server, "ACL", "SETUSER", user, f"-{right}")
                given_back.callback(servers.execute, server, "ACL", "SETUSER", user, f"+{right}")
        for kind in sorted(KINDS):
            with pytest.raises(CacheUnavailable, match=re.escape(right)):
                running.reader_as("reader", kind).get("long_lived", KEYS[0])
        found = running.command("doctor", exit_code=1)["findings"]
        (cache,) = [one for one in found if one["check"] == "cache"]
        assert right in cache["said"]
        assert "permission" in cache["mend"]
    servers.forget_denied()


@pytest.mark.last  # a node is gone after it
def test_users_can_read_and_invalidate_after_a_failover(system: SystemOfUsers) -> None:
    """The last test of each system: a server is lost."""
    servers = system.servers
    readers = [system.reader_as("reader", kind) for kind in sorted(KINDS)]
    invalidator = system.reader_as("invalidator", "sync")
    before = [readers[0].get("long_lived", params, timeout=MAX_WAIT_SECONDS)["load"] for params in KEYS]
    if isinstance(servers, ClusterWithUsers):
        servers.lose(servers.node_of(readers[0].key("long_lived", KEYS[0]).entry))
    else:
        servers.kill_master()

    def is_loaded_anew(reader: AnyReader, params: dict[str, str], load: int) -> bool:
        if not done(lambda: invalidator.invalidate("long_lived", params).generation):
            return False
        value = reader.get("long_lived", params, fresh=True, timeout=5, default=None)
        return value is not None and value["load"] > load

    for params, load in zip(KEYS, before, strict=True):
        for reader in readers:
            eventually(
                lambda reader=reader, params=params, load=load: is_loaded_anew(reader, params, load),
                f"{params} is loaded anew"
            )  # fmt: skip
