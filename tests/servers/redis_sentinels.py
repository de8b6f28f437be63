"""A master with replicas and the Sentinels that watch it: real servers on loopback, for tests that lose the master."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from typing import TYPE_CHECKING, ClassVar, Self

import redis

from refresher.embedded import RedisServer, free_port
from tests.servers.redis_binaries import system_redis
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.support.authority import Authority

MASTER_NAME = "the master"  # with a space: the URL has to encode it
DOWN_AFTER_MS = 1_500
NEVER_DOWN_AFTER_MS = round(10_000 * MAX_WAIT_SECONDS)
"""While nothing is lost: a server on a busy machine may not respond for a while."""


def watching(host: str, port: int, quorum: int) -> list[tuple[str, str]]:
    """Return a Sentinel's directives for the master at an address, without passwords."""
    return [
        ("sentinel monitor", f'"{MASTER_NAME}" {host} {port} {quorum}'),
        ("sentinel down-after-milliseconds", f'"{MASTER_NAME}" {NEVER_DOWN_AFTER_MS}'),
        ("sentinel failover-timeout", f'"{MASTER_NAME}" 5000'),
    ]


class SentinelServer(RedisServer):
    """One Sentinel. Made by `watch`."""

    title: ClassVar[str] = "Redis Sentinel"

    @classmethod
    def watch(
        cls, master: RedisServer, *, port: int, quorum: int, password: str, more: Sequence[tuple[str, str]] = ()
    ) -> Self:
        """Start one, of the master's version, that requires ``password`` and has the master's own."""
        directives = [
            *more,
            *watching(master.host, port, quorum),
            ("sentinel auth-pass", f'"{MASTER_NAME}" {master.password}'),
            ("sentinel sentinel-pass", password),
        ]
        sentinel = cls(master.binary, directives, 2 * MAX_WAIT_SECONDS)
        sentinel.password = password
        sentinel._launch_or_clean_up()
        return sentinel

    def _prepare(self) -> tuple[Sequence[str], Mapping[str, str] | None]:
        argv, environment = super()._prepare()
        return [*argv, "--sentinel"], environment


class Sentinels:
    """One master, its replicas, its Sentinels. All end with the stack."""

    def __init__(self, stack: ExitStack, *, replicas: int = 1, sentinels: int = 1) -> None:
        self.password, self.sentinel_password = secrets.token_hex(16), secrets.token_hex(16)
        first = stack.enter_context(self._node())
        self.nodes = [first]
        for _ in range(replicas):
            self.nodes.append(stack.enter_context(self._node(("replicaof", f"{first.host} {self.port_of(first)}"))))
        for replica in self.nodes[1:]:
            eventually(lambda node=replica: self._is_replicating(node), "it replicates")
        self.sentinels = [
            stack.enter_context(self._sentinel(first, quorum=sentinels // 2 + 1)) for _ in range(sentinels)
        ]
        eventually(self._all_know_each_other, "the Sentinels know all there is")

    def url(self, db: int = 0) -> str:
        """Return the URL for CACHE_REDIS_URL."""
        hosts = ",".join(f"{sentinel.host}:{self.port_of(sentinel)}" for sentinel in self.sentinels)
        name = MASTER_NAME.replace(" ", "%20")
        return f"redis+sentinel://:{self.password}@{hosts}/{name}/{db}?sentinel_password={self.sentinel_password}"

    def port_of(self, server: RedisServer) -> int:
        """Return the port at which clients, replicas and Sentinels reach a server of any kind."""
        return server.port

    @property
    def master(self) -> RedisServer:
        """Return the node that all Sentinels report as the master now."""
        ports = {self._state(sentinel)["port"] for sentinel in self.sentinels}
        return next(node for node in self.nodes if ports == {self.port_of(node)})

    def fail_over(self) -> RedisServer:
        """Order a failover, as for maintenance; return the new master. The old one stays one, too, for some seconds."""
        old = self.master
        eventually(self._begins_failover, "a failover")
        return self.wait_for_another(old)

    def follows(self, node: RedisServer) -> None:
        """Wait until a node that was the master is a replica."""
        eventually(lambda: self._is_replicating(node), "the old master follows")

    def kill_master(self) -> RedisServer:
        """SIGKILL the master; return the new one."""
        old = self.master
        old.kill()
        self._set_down_after(DOWN_AFTER_MS)
        return self.wait_for_another(old)

    def cut_off(self, node: RedisServer) -> None:
        """Cut a node off from Sentinels and replicas, without effect on its other connections."""
        self._set_down_after(DOWN_AFTER_MS)
        with self.client(node) as client:
            client.config_set("requirepass", secrets.token_hex(16))

            def is_noticed() -> bool:
                # Repeatedly: a Sentinel that was just connecting had no name yet.
                for one in client.client_list():
                    if one["name"].startswith("sentinel-") or "S" in one["flags"]:
                        client.client_kill_filter(_id=one["id"])
                states = map(self._state, self.sentinels)
                return all(state["is_sdown"] or state["port"] != self.port_of(node) for state in states)

            eventually(is_noticed, "no Sentinel reaches it")

    def cut_off_master(self) -> RedisServer:
        """Fail over without the knowledge of the old master, which goes on as one; return the new one."""
        old = self.master
        self.cut_off(old)
        return self.wait_for_another(old)

    def wait_for_another(self, old: RedisServer) -> RedisServer:
        """Return the master that all Sentinels agree on, other than ``old``."""

        def another() -> RedisServer | None:
            ports = {self._state(sentinel)["port"] for sentinel in self.sentinels}
            return next((node for node in self.nodes if node is not old and ports == {self.port_of(node)}), None)

        new = eventually(another, "another master")
        eventually(lambda: self._role(new) == "master", "it takes writes")
        self._set_down_after(NEVER_DOWN_AFTER_MS)
        return new

    def execute(self, server: RedisServer, *command: str) -> object:
        """Send one command to one server."""
        with self.client(server) as client:
            return client.execute_command(*command)

    def client(self, server: RedisServer, db: int = 0) -> redis.Redis:
        """Return a client of one server of any kind."""
        return redis.Redis.from_url(server.url(db), protocol=2)

    def _node(self, *more: tuple[str, str]) -> RedisServer:
        return RedisServer.start(
            password=self.password,
            extra_config=[("masterauth", self.password), ("repl-diskless-sync-delay", "0"), *more],
        )

    def _sentinel(self, master: RedisServer, *, quorum: int) -> RedisServer:
        return SentinelServer.watch(master, port=self.port_of(master), quorum=quorum, password=self.sentinel_password)

    def _set_down_after(self, milliseconds: int) -> None:
        """Set after how long a silent server is down for the Sentinels."""
        for sentinel in self.sentinels:
            self.execute(sentinel, "SENTINEL", "SET", MASTER_NAME, "down-after-milliseconds", str(milliseconds))

    def _begins_failover(self) -> bool:
        try:
            self.execute(self.sentinels[0], "SENTINEL", "FAILOVER", MASTER_NAME)
        except redis.ResponseError as error:  # it does not know a replica's state yet
            if not str(error).startswith("NOGOODSLAVE"):
                raise
            return False
        return True

    def _is_replicating(self, node: RedisServer) -> bool:
        with self.client(node) as client:
            return client.info("replication").get("master_link_status") == "up"

    def _role(self, node: RedisServer) -> str:
        with self.client(node) as client:
            return str(client.info("replication")["role"])

    def _state(self, sentinel: RedisServer) -> dict[str, object]:
        with self.client(sentinel) as client:
            state: dict[str, object] = client.sentinel_master(MASTER_NAME)
            return state

    def _all_know_each_other(self) -> bool:
        known = [(state["num-slaves"], state["num-other-sentinels"]) for state in map(self._state, self.sentinels)]
        return set(known) == {(len(self.nodes) - 1, len(self.sentinels) - 1)}


class SentinelsWithTls(Sentinels):
    """The same with TLS on every link, by one certificate. The tests' own commands alone do without."""

    def __init__(self, stack: ExitStack, authority: Authority, *, replicas: int = 1, sentinels: int = 1) -> None:
        self._authority, self._certificate = authority, authority.issue("sentinels")
        self._ports: dict[int, int] = {}
        super().__init__(stack, replicas=replicas, sentinels=sentinels)

    def url(self, db: int = 0) -> str:
        return f"{super().url(db).replace('redis', 'rediss', 1)}&ssl_ca_certs={self._authority.root}"

    def port_of(self, server: RedisServer) -> int:
        return self._ports[server.port]

    def _tls(self, port: int) -> list[tuple[str, str]]:
        of_links = {"tls-replication": "yes", "tls-ca-cert-file": str(self._authority.root)}
        return list((self._certificate.of_redis(port) | of_links).items())

    def _node(self, *more: tuple[str, str]) -> RedisServer:
        port = free_port()
        requires_auth = [("masterauth", self.password), ("repl-diskless-sync-delay", "0")]
        node = RedisServer.start(
            binary=system_redis(), password=self.password, extra_config=[*self._tls(port), *requires_auth, *more]
        )
        self._ports[node.port] = port
        return node

    def _sentinel(self, master: RedisServer, *, quorum: int) -> RedisServer:
        port = free_port()
        sentinel = SentinelServer.watch(
            master, port=self.port_of(master), quorum=quorum, password=self.sentinel_password, more=self._tls(port)
        )
        self._ports[sentinel.port] = port
        return sentinel
