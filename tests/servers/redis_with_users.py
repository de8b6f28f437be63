"""Sentinels and a cluster whose servers have the users of deploy/redis, and one more with all permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tests.servers.redis_cluster import Cluster, ClusterNode
from tests.servers.redis_sentinels import MASTER_NAME, Sentinels, SentinelServer, watching
from tests.support.redis_users import ADMIN, UsersRedis, make_users

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

    from refresher.embedded import RedisServer

Denied = set[tuple[str, str, str]]


class _UsersNode(UsersRedis, ClusterNode):
    """A node of a cluster."""


class _UsersSentinel(UsersRedis, SentinelServer):
    """A Sentinel."""


class ClusterWithUsers(Cluster):
    """A cluster and a broker; its replicas sign in as their user."""

    admin: ClassVar[str] = ADMIN

    def __init__(self, stack: ExitStack, folder: Path, *, replicas: bool = False) -> None:
        self.passwords = make_users(folder, "--cache", "cluster")
        self._acl = (folder / "cache.acl").read_text()
        self.broker = stack.enter_context(UsersRedis.with_users((folder / "broker.acl").read_text()))
        super().__init__(stack, replicas=replicas)

    def url_of(self, user: str) -> str:
        """Return the URL with which a user signs in."""
        hosts = ",".join(f"{node.host}:{node.port}" for node in self.nodes[:2])
        return f"redis+cluster://{user}:{self.passwords['cache', user]}@{hosts}"

    def denied(self) -> Denied:
        """Return the refusals of all of them, as `UsersRedis.denied`."""
        return _denied_by([*self.nodes, *self.replicas, self.broker])

    def forget_denied(self) -> None:
        """Empty the logs of refusals."""
        _forget_denied([*self.nodes, *self.replicas, self.broker])

    def _node(self) -> ClusterNode:
        requires_auth = [("masteruser", "replica"), ("masterauth", self.passwords["cache", "replica"])]
        return _UsersNode.with_users(self._acl, requires_auth, self.password)


class SentinelsWithUsers(Sentinels):
    """Sentinels with the servers of the cache, and a broker of one server; or the other way round, ``of="broker"``.

    Replicas and Sentinels sign in as users at each other and the servers.
    """

    def __init__(
        self, stack: ExitStack, folder: Path, *, replicas: int = 1, sentinels: int = 1, of: str = "cache"
    ) -> None:
        self.of, alone = of, {"cache": "broker", "broker": "cache"}[of]
        self.passwords = make_users(folder, f"--{of}", "sentinel")
        self._acls = {server: (folder / f"{server}.acl").read_text() for server in (of, "sentinel")}
        self.alone = stack.enter_context(UsersRedis.with_users((folder / f"{alone}.acl").read_text()))
        super().__init__(stack, replicas=replicas, sentinels=sentinels)

    @property
    def broker(self) -> UsersRedis:
        """Return the broker, where the Sentinels are the cache's."""
        assert self.of == "cache"
        return self.alone

    def url_of(self, user: str) -> str:
        """Return the URL with which a user signs in at the master, and as the finder at the Sentinels."""
        hosts = ",".join(f"{sentinel.host}:{sentinel.port}" for sentinel in self.sentinels)
        return (
            f"redis+sentinel://{user}:{self.passwords[self.of, user]}@{hosts}/{MASTER_NAME.replace(' ', '%20')}/0"
            f"?sentinel_username=finder&sentinel_password={self.passwords['sentinel', 'finder']}"
        )

    def denied(self) -> Denied:
        """Return the refusals of all running ones, as `UsersRedis.denied`."""
        return _denied_by([*self.nodes, *self.sentinels, self.alone])

    def forget_denied(self) -> None:
        """Empty the logs of refusals."""
        _forget_denied([*self.nodes, *self.sentinels, self.alone])

    def _node(self, *more: tuple[str, str]) -> RedisServer:
        requires_auth = [("masteruser", "replica"), ("masterauth", self.passwords[self.of, "replica"])]
        at_once = ("repl-diskless-sync-delay", "0")
        return UsersRedis.with_users(self._acls[self.of], [*requires_auth, at_once, *more], self.password)

    def _sentinel(self, master: RedisServer, *, quorum: int) -> RedisServer:
        directives = [
            *watching(master.host, master.port, quorum),
            ("sentinel auth-user", f'"{MASTER_NAME}" sentinel'),
            ("sentinel auth-pass", f'"{MASTER_NAME}" {self.passwords[self.of, "sentinel"]}'),
            ("sentinel sentinel-user", "peer"),
            ("sentinel sentinel-pass", self.passwords["sentinel", "peer"]),
        ]
        return _UsersSentinel.with_users(self._acls["sentinel"], directives, self.sentinel_password)


def _denied_by(servers: list[RedisServer]) -> Denied:
    return set().union(*(server.denied() for server in servers if isinstance(server, UsersRedis) and server.is_running))


def _forget_denied(servers: list[RedisServer]) -> None:
    for server in servers:
        if isinstance(server, UsersRedis) and server.is_running:
            server.forget_denied()
