"""A Redis Cluster of three masters: real servers on loopback, for tests that move slots and lose nodes."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import redis
from redis.crc import key_slot

from refresher.embedded import RedisServer
from tests.servers.redis_binaries import is_oldest
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SLOTS = 16_384
NODES = 3
NODE_TIMEOUT_MS = 2_000
NO_NODE_TIMEOUT_MS = round(10_000 * MAX_WAIT_SECONDS)
"""Of a cluster that is up and has lost no node: a node on a busy machine may not respond for a while."""


class ClusterNode(RedisServer):
    """One node; a cluster has a second port."""

    port_count: ClassVar[int] = 2

    @property
    def port(self) -> int:
        """The port for clients. Redis 6.2 lets nobody choose the other one, which is 10,000 above this."""
        return self.bus_port - 10_000 if is_oldest() else self.ports[0]

    @property
    def bus_port(self) -> int:
        """The port for other nodes."""
        return self.ports[1]

    def _prepare(self) -> tuple[Sequence[str], Mapping[str, str] | None]:
        argv, environment = super()._prepare()
        directives: dict[str, str | int] = {
            "cluster-enabled": "yes",
            "cluster-node-timeout": NODE_TIMEOUT_MS,
            "cluster-require-full-coverage": "no",
            # Else a replica stops standing for election 30 s after its master was lost, however slow the machine is.
            "cluster-replica-validity-factor": 0,
            "repl-diskless-sync-delay": 0,
        }
        if not is_oldest():
            directives["cluster-port"] = self.bus_port
        with Path(argv[1]).open("a") as config:
            config.writelines(f"{directive} {argument}\n" for directive, argument in directives.items())
        return argv, environment


class Cluster:
    """Three masters with a third of the slots each; with ``replicas`` each has one. All end with the stack."""

    admin: ClassVar[str] = "default"

    def __init__(self, stack: ExitStack, *, replicas: bool = False) -> None:
        self.password = secrets.token_hex(16)
        self.nodes = [stack.enter_context(self._node()) for _ in range(NODES)]
        self.replicas = [stack.enter_context(self._node()) for _ in range(NODES if replicas else 0)]
        first = self.nodes[0]
        for number, node in enumerate(self.nodes):
            slots = range(number * SLOTS // NODES, (number + 1) * SLOTS // NODES)
            self.execute(node, "CLUSTER", "ADDSLOTS", *slots)
            self.execute(node, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in [*self.nodes[1:], *self.replicas]:
            self.execute(node, "CLUSTER", "MEET", first.host, first.port, first.bus_port)
        eventually(lambda: self._all_know(len(self.nodes + self.replicas)), "all nodes know each other")
        for replica, master in zip(self.replicas, self.nodes, strict=False):
            self.execute(replica, "CLUSTER", "REPLICATE", self.id_of(master))
        eventually(self._is_ok, "the cluster is up")
        self._set_node_timeout([*self.nodes, *self.replicas], NO_NODE_TIMEOUT_MS)

    def url(self) -> str:
        """Return the URL for CACHE_REDIS_URL; it names two of the nodes."""
        hosts = ",".join(f"{node.host}:{node.port}" for node in self.nodes[:2])
        return f"redis+cluster://:{self.password}@{hosts}"

    def empty(self) -> None:
        """Remove all keys and scripts of the nodes."""
        for node in self.nodes:
            self.execute(node, "FLUSHALL")
            self.execute(node, "SCRIPT FLUSH")

    def execute(self, node: RedisServer, *command: str | int) -> object:
        """Send one command to one node."""
        with self.client(node) as client:
            return client.execute_command(*command)

    def client(self, node: RedisServer) -> redis.Redis:
        """Return a client of one node."""
        return redis.Redis.from_url(node.url(), protocol=2)

    def node_of(self, key: str) -> RedisServer:
        """Return the node to which a key's slot was assigned."""
        return self.nodes[key_slot(key.encode()) * NODES // SLOTS]

    def id_of(self, node: RedisServer) -> str:
        """Return a node's id in the cluster."""
        reply = self.execute(node, "CLUSTER", "MYID")
        return reply.decode() if isinstance(reply, bytes) else str(reply)

    def add_node(self, stack: ExitStack) -> ClusterNode:
        """Start one more master without slots, and add it to all nodes; it ends with the stack."""
        node = stack.enter_context(self._node())
        first, count = self.nodes[0], len(self.nodes + self.replicas) + 1
        self.execute(node, "CLUSTER", "SET-CONFIG-EPOCH", count)
        self.execute(node, "CLUSTER", "MEET", first.host, first.port, first.bus_port)
        eventually(lambda: self._all_know(count), "all nodes know the new one")
        eventually(lambda: self._info(node)["cluster_state"] == "ok", "and it them")
        self._set_node_timeout([node], NO_NODE_TIMEOUT_MS)
        return node

    def lose(self, lost: RedisServer) -> None:
        """SIGKILL a node; its replica takes over."""
        lost.kill()
        self._set_node_timeout([node for node in (*self.nodes, *self.replicas) if node is not lost], NODE_TIMEOUT_MS)

    def move_slot(self, slot: int, source: RedisServer, target: RedisServer) -> None:
        """Move a slot and its keys, at once."""
        self.begin_move(slot, source, target)
        self.move_keys(slot, source, target)
        self.end_move(slot, target)

    def begin_move(self, slot: int, source: RedisServer, target: RedisServer) -> None:
        """Begin to move a slot: the source redirects requests for missing keys to the target."""
        self.execute(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(source))
        self.execute(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(target))

    def move_keys(self, slot: int, source: RedisServer, target: RedisServer) -> None:
        """Move the keys of a slot; one that both have is the source's."""
        with self.client(source) as client:
            keys = client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1_000)
            if keys:
                timeout_ms, access = int(1_000 * MAX_WAIT_SECONDS), ("AUTH2", self.admin, self.password)
                options = ("REPLACE", *access, "KEYS", *keys)
                client.execute_command("MIGRATE", target.host, target.port, "", 0, timeout_ms, *options)

    def end_move(self, slot: int, target: RedisServer) -> None:
        """Notify all nodes that a slot has moved."""
        for node in [target, *self.nodes]:
            self.execute(node, "CLUSTER", "SETSLOT", slot, "NODE", self.id_of(target))

    def _node(self) -> ClusterNode:
        return ClusterNode.start(password=self.password, extra_config=[("masterauth", self.password)])

    def _set_node_timeout(self, nodes: Sequence[RedisServer], milliseconds: int) -> None:
        """Set after how long a silent node is lost for these."""
        for node in nodes:
            self.execute(node, "CONFIG", "SET", "cluster-node-timeout", milliseconds)

    def _all_know(self, count: int) -> bool:
        return all(self._info(node)["cluster_known_nodes"] == str(count) for node in self.nodes + self.replicas)

    def _is_ok(self) -> bool:
        replies = [self._info(node) for node in self.nodes + self.replicas]
        masters = {(info["cluster_state"], info["cluster_slots_ok"], info["cluster_size"]) for info in replies}
        return masters == {("ok", str(SLOTS), str(NODES))} and all(map(self._is_replicating, self.replicas))

    def _info(self, node: RedisServer) -> dict[str, str]:
        with self.client(node) as client:
            info: dict[str, str] = client.cluster("INFO")
            return info

    def _is_replicating(self, node: RedisServer) -> bool:
        with self.client(node) as client:
            return client.info("replication").get("master_link_status") == "up"
