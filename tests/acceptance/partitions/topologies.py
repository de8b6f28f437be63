"""Fleets on hosts of their own: each server, worker and client of a topology on one host of a laboratory."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import redis
from kombu import Connection
from redis.crc import key_slot

from api_client.config.broker import queues
from api_client.trigger.broker import queue_length
from refresher.embedded import ArcadeDbServer, RedisServer
from tests.acceptance.conftest import ROOT
from tests.acceptance.partitions.lab import Laboratory
from tests.acceptance.partitions.worker import NODES, name_of
from tests.servers.rabbitmq_server import RabbitMqServer
from tests.servers.redis_cluster import NODE_TIMEOUT_MS, Cluster, ClusterNode
from tests.servers.redis_sentinels import DOWN_AFTER_MS, MASTER_NAME, Sentinels, SentinelServer
from tests.servers.restarts import restart
from tests.support.graph_session import watched_nodes
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import ExitStack
    from pathlib import Path

    from refresher.embedded import GuardedProcess
    from refresher.embedded.server import EmbeddedServer
    from tests.acceptance.partitions.lab import Host

MASTER: Final = "the master"
"""In a plan's place for a host: the cache's or the broker's master at that time."""
COMMAND_SECONDS: Final = 2.0
MAX_LAG_SECONDS: Final = 2
NAMESPACE: Final = "cache"
KEPT: Final = re.compile(rf"{NAMESPACE}:(e1|t1|g1|c1|v1|dead1)\b")
"""The cache's keys at rest: entries, the tags' indexes, states and clock, live versions, dead letters."""
WORKER: Final = "tests.acceptance.partitions.worker"

SETTINGS: Final = {
    "REFRESHER_QUERIES": WORKER,
    "CACHE_QUEUE_TTL": "3s",
    "CACHE_COOLING": "1s",
    "CACHE_COOLING_MAX": "2s",
    "CACHE_XFETCH_TIMEOUT": "5s",
    "CACHE_XFETCH_RETRY_BACKOFF": "1",
    "STAMPEDE_LOCK_TIMEOUT_MS": "1500",
    "CACHE_REDIS_TIMEOUT": "1s",
    "CACHE_RECORD_RETENTION": "10s",
}
"""Short, so that a run of a minute shows what would take minutes; but no busy machine exceeds Redis' timeout."""


@dataclass(frozen=True)
class Topology:
    """The hosts of a topology, by what runs there."""

    name: str
    cache: tuple[str, ...]
    broker: tuple[str, ...]
    sentinels: tuple[str, ...] = ()
    rabbitmq: bool = False
    workers: tuple[str, ...] = ("worker-1", "worker-2")
    readers: tuple[str, ...] = ("reader-sync", "reader-async", "reader-local")
    graph: str = "graph"
    writer: str = "writer"

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return all hosts."""
        servers = (*self.cache, *self.broker, *self.sentinels, self.graph)
        return (*servers, *self.workers, *self.readers, self.writer)

    @property
    def replicated(self) -> tuple[str, ...]:
        """Return the servers of which one may take the place of another."""
        return self.broker if len(self.broker) > 1 else self.cache


def _named(name: str, count: int) -> tuple[str, ...]:
    return tuple(f"{name}-{number}" for number in range(1, count + 1))


TOPOLOGIES: Final = {
    one.name: one
    for one in (
        Topology("sentinel", _named("cache", 3), ("broker",), _named("sentinel", 3)),
        # There is no in-process tier on a cluster.
        Topology("cluster", _named("cache", 6), ("broker",), readers=("reader-sync", "reader-async")),
        Topology("broker-sentinel", ("cache",), _named("broker", 3), _named("sentinel", 3)),
        Topology("rabbitmq", ("cache",), ("broker",), rabbitmq=True),
    )
}


def _replicated(password: str, min_replicas: int) -> list[tuple[str, str]]:
    """Return the directives of a master and of its replicas, which keep their data on disk."""
    writes = [("min-replicas-to-write", str(min_replicas)), ("min-replicas-max-lag", str(MAX_LAG_SECONDS))]
    return [("masterauth", password), ("appendonly", "yes"), *writes]


class SentinelsOnHosts(Sentinels):
    """A master, two replicas and three Sentinels, which notice within seconds that one is lost."""

    def __init__(self, stack: ExitStack, nodes: list[Host], sentinels: list[Host], min_replicas: int) -> None:
        self._hosts, self._sentinel_hosts, self._min_replicas = iter(nodes), iter(sentinels), min_replicas
        super().__init__(stack, replicas=len(nodes) - 1, sentinels=len(sentinels))
        self._set_down_after(DOWN_AFTER_MS)

    def is_whole(self) -> bool:
        """Return whether all Sentinels see the same master and all replicas, and those replicate it."""
        states = [self._state(sentinel) for sentinel in self.sentinels]
        if not self._all_know_each_other() or any(state["flags"] != "master" for state in states):
            return False
        master = self.master
        return all(self._is_replicating(node) for node in self.nodes if node is not master)

    def _node(self, *more: tuple[str, str]) -> RedisServer:
        config = [*_replicated(self.password, self._min_replicas), ("repl-diskless-sync-delay", "0"), *more]
        return next(self._hosts).runs(RedisServer).start(password=self.password, extra_config=config)

    def _sentinel(self, master: RedisServer, *, quorum: int) -> RedisServer:
        kind = next(self._sentinel_hosts).runs(SentinelServer)
        return kind.watch(master, port=self.port_of(master), quorum=quorum, password=self.sentinel_password)


class ClusterOnHosts(Cluster):
    """Three masters and three replicas, which take over within seconds."""

    def __init__(self, stack: ExitStack, hosts: list[Host], min_replicas: int) -> None:
        self._hosts, self._min_replicas = iter(hosts), min_replicas
        super().__init__(stack, replicas=True)
        self._set_node_timeout([*self.nodes, *self.replicas], NODE_TIMEOUT_MS)

    def begin_moves(self, count: int) -> list[tuple[int, RedisServer, RedisServer]]:
        """Begin to move some slots with keys from each master to the next; every other one's keys have moved then."""
        moves = [
            (slot, source, following)
            for source, following in zip(self.nodes, self.nodes[1:] + self.nodes[:1], strict=True)
            for slot in self._slots_with_keys(self._master_of(source))[:count]
        ]
        for number, (slot, source, following) in enumerate(moves):
            self.begin_move(slot, self._master_of(source), self._master_of(following))
            if number % 2:
                self.move_keys(slot, self._master_of(source), self._master_of(following))
        return moves

    def end_moves(self, moves: Iterable[tuple[int, RedisServer, RedisServer]]) -> None:
        """End these moves. A replica that has taken over since knows nothing of them: they begin again there."""
        for slot, old, new in moves:
            source, target = self._master_of(old), self._master_of(new)
            self.begin_move(slot, source, target)
            self.move_keys(slot, source, target)
            for node in (target, source, *map(self._master_of, self.nodes)):
                self.execute(node, "CLUSTER", "SETSLOT", slot, "NODE", self.id_of(target))

    def is_whole(self) -> bool:
        """Return whether all nodes see all slots served by three masters, each with a replica."""
        servers = [*self.nodes, *self.replicas]
        states = [self._info(node) for node in servers]
        if any((state["cluster_state"], state["cluster_size"]) != ("ok", str(len(self.nodes))) for state in states):
            return False
        return sum(map(self._is_replicating, servers)) == len(self.replicas)

    def _master_of(self, node: RedisServer) -> RedisServer:
        """Return the master among a node and its replica."""
        pair = (node, self.replicas[self.nodes.index(node)])
        return next(one for one in pair if self._is_master(one))

    def _is_master(self, node: RedisServer) -> bool:
        with self.client(node) as client:
            return client.info("replication")["role"] == "master"

    def _slots_with_keys(self, node: RedisServer) -> list[int]:
        with self.client(node) as client:
            return sorted({key_slot(key) for key in client.scan_iter()})

    def _node(self) -> ClusterNode:
        config = _replicated(self.password, self._min_replicas)
        return next(self._hosts).runs(ClusterNode).start(password=self.password, extra_config=config)


class Fleet:
    """A topology that runs. Everything ends with the stack; this thread is in the laboratory as long.

    ``servers`` has each server, and ``processes`` each worker and client, by its host. Logs go to ``folder``.
    """

    def __init__(
        self, stack: ExitStack, topology: Topology, folder: Path, *, min_replicas: int = 0, has_clocks: bool = False
    ) -> None:
        self.topology, self.folder, self._stack, self._min_replicas = topology, folder, stack, min_replicas
        self.lab = Laboratory(stack, topology.hosts, folder if has_clocks else None)
        self.servers: dict[str, Any] = {}
        self.processes: dict[str, GuardedProcess] = {}
        self._starts: dict[str, Callable[[], None]] = {}
        stack.enter_context(self.lab.entered())
        self.replicated: SentinelsOnHosts | ClusterOnHosts | None = None
        self.graph = self._one(topology.graph, ArcadeDbServer)
        broker = (
            self._one(topology.broker[0], RabbitMqServer).url if topology.rabbitmq else self._redis(topology.broker, 1)
        )
        self.env = {
            **os.environ, "PYTHONPATH": str(ROOT), **SETTINGS, **self.graph.environ,
            "CACHE_REDIS_URL": self._redis(topology.cache, 0), "CACHE_BROKER_URL": broker,
        }  # fmt: skip

    @property
    def master(self) -> str:
        """Return the host of a master of what is replicated; of several, the first's."""
        for name in self.topology.replicated:
            with suppress(redis.RedisError), self.client(name) as client:
                # A demoted master may still say that it is one, and is no worse a victim.
                if client.info("replication")["role"] == "master":
                    return name
        return self.topology.replicated[0]

    def client(self, name: str, db: int = 0) -> redis.Redis:
        """Return a client of one Redis."""
        return redis.Redis.from_url(self.servers[name].url(db), socket_timeout=COMMAND_SECONDS, protocol=2)

    def start_worker(self, name: str) -> None:
        """Start a worker on its host."""
        self._starts[name] = partial(self.start_worker, name)
        self._start(
            name, "tests.support.celery_program", "-A", WORKER, "worker", "--loglevel", "INFO",
            "-n", f"{name}@{name}", "-c", "2", HISTORY_LOG=str(self.folder / f"{name}-worker"),
        )  # fmt: skip

    def start_workers(self) -> None:
        """Start all workers, and wait until they consume."""
        for name in self.topology.workers:
            self.start_worker(name)
        for name in self.topology.workers:
            process = self.processes[name]
            eventually(lambda process=process: "ready." in process.tail_of_log(10_000), f"{name} is ready")

    def start_readers(self, seed: int) -> None:
        """Make the graph's nodes, start the readers, and wait until all have begun."""
        self._stack.enter_context(watched_nodes(self.graph, [name_of(number) for number in range(NODES)]))
        for number, name in enumerate(self.topology.readers):
            self.start_client(name, seed + 1_000 * number)

    def start_client(self, name: str, seed: int, *options: str) -> None:
        """Start a reader or the writer, and wait until it has begun."""
        self._starts[name] = partial(self.start_client, name, seed, *options)
        role, number = name.rpartition("-")[2], sum(1 for _ in self.folder.glob(f"{name}-*.jsonl"))
        log = self.folder / f"{name}-{role}-{number}.jsonl"
        log.touch()
        program = "tests.acceptance.partitions.programs"
        self._start(name, program, role, "--log", str(log), "--seed", str(seed), *options)
        eventually(lambda: log.stat().st_size, f"{name} has begun")

    def end_clients(self) -> None:
        """End readers and writer, each after what it is at."""
        for name in (*self.topology.readers, self.topology.writer):
            process = self.processes[name]
            assert process.terminate(MAX_WAIT_SECONDS) == 0, f"{name}: {process.tail_of_log()}"

    def is_whole(self) -> bool:
        """Return whether every server answers, masters and replicas agree, and the workers run."""
        try:
            for name in (name for name, server in self.servers.items() if isinstance(server, RedisServer)):
                with self.client(name) as client:
                    client.ping()
            return (self.replicated is None or self.replicated.is_whole()) and all(
                self.processes[name].poll() is None for name in self.topology.workers if name in self.processes
            )
        except (redis.RedisError, StopIteration, KeyError):
            return False

    def running(self, name: str) -> EmbeddedServer | GuardedProcess:
        """Return what runs on a host."""
        return self.servers.get(name) or self.processes[name]

    def restart(self, name: str) -> None:
        """Start what runs on a host again, a server with its data on disk; end it first, gracefully, if it runs."""
        if name in self.servers:
            if name in self.topology.sentinels:
                self.servers[name].kill()  # it has no data to save
                config = self.servers[name].directory / "redis.conf"
                # A Sentinel writes a name with a space in it as it can't read it again.
                config.write_text(config.read_text().replace(f" {MASTER_NAME} ", f' "{MASTER_NAME}" '))
            restart(self.servers[name], keep_data=True)
        else:
            self.processes[name].terminate()
            self._starts[name]()

    def left(self) -> list[str]:
        """Return the keys and queues that are not there at rest: records, pending invalidations, messages."""
        found = [key for name in self.topology.cache for key in self._keys(name, 0) if not KEPT.match(key)]
        if not self.topology.rabbitmq:
            of_broker = {key for name in self.topology.broker for key in self._keys(name, 1)}
            return [*found, *(key for key in of_broker if not key.startswith("_kombu.binding"))]
        url = self.env["CACHE_BROKER_URL"]
        with Connection(url) as connection:
            names = (queue.name for queue in queues(NAMESPACE, url))
            return [*found, *(name for name in names if queue_length(connection, name))]

    def _keys(self, name: str, db: int) -> list[str]:
        with self.client(name, db) as client:
            return [key.decode("latin-1") for key in client.scan_iter(count=1_000)]

    def _start(self, name: str, module: str, *args: str, **extra: str) -> None:
        number = sum(1 for _ in self.folder.glob(f"{name}-*.log"))
        process = self.lab.hosts[name].start(
            [sys.executable, "-m", module, *args],
            env={**self.env, **extra}, cwd=ROOT, log_file=self.folder / f"{name}-{number}.log",
        )  # fmt: skip
        self.processes[name] = process
        self._stack.callback(process.kill)

    def _redis(self, names: Sequence[str], db: int) -> str:
        """Start the servers of the cache or the broker; return the URL."""
        hosts = [self.lab.hosts[name] for name in names]
        if len(hosts) == 1:
            return str(self._one(names[0], RedisServer).url(db))
        watching = [self.lab.hosts[name] for name in self.topology.sentinels]
        if watching:
            behind = self.replicated = SentinelsOnHosts(self._stack, hosts, watching, self._min_replicas)
            places = (*names, *self.topology.sentinels)
            self.servers |= dict(zip(places, (*behind.nodes, *behind.sentinels), strict=True))
            return behind.url(db)
        cluster = self.replicated = ClusterOnHosts(self._stack, hosts, self._min_replicas)
        self.servers |= dict(zip(names, (*cluster.nodes, *cluster.replicas), strict=True))
        return cluster.url()

    def _one(self, name: str, kind: Any) -> Any:
        server = self._stack.enter_context(self.lab.hosts[name].runs(kind).start())
        self.servers[name] = server
        return server
