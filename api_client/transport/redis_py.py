"""Clients of redis-py, and their errors as ours; those on a link become ours in `health`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Self, cast

import redis
from redis import BlockingConnectionPool, ConnectionPool, RedisCluster
from redis.backoff import NoBackoff
from redis.cluster import PRIMARY, ClusterNode
from redis.exceptions import (
    AuthenticationError,
    ConnectionError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TimeoutError,
)
from redis.retry import Retry
from redis.sentinel import SentinelManagedConnection, SentinelManagedSSLConnection

from api_client.config.redis_url import RedisUrl, Topology, read_url
from api_client.errors import CacheUnavailable
from api_client.transport.connection_maker import lead_to_master, readable, resolve_by, socket_options
from api_client.transport.sentinel import MasterAddress, RoundRobin, SentinelResolver
from api_client.transport.wire import pack_bytes_only


class _NodePool(ConnectionPool):
    """The pool of one node: redis-py's cluster passes no packer on to its connections."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        pack_bytes_only(self)


class LazyCluster:
    """A `RedisCluster` that connects when it is first used. Thread-safe.

    Args:
        url: the nodes to connect to first, and the options of the connections to all.
        options: of the sockets.
        retry: what to try again of a command, and how; the slots are refreshed before each try.
    """

    def __init__(self, url: RedisUrl, options: dict[str, Any], retry: Retry) -> None:
        # redis-py reads the URL as it does for one node.
        read = ConnectionPool.from_url(url.node_url).connection_kwargs
        self._options = {name: value for name, value in read.items() if name not in {"host", "port", "db"}}
        self._options |= {**options, "ssl": url.uses_tls, "retry": retry}
        self._options["connection_pool_class"] = _NodePool
        self._members = url.members
        self._lock = threading.RLock()
        self._made: RedisCluster | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster(), name)

    def node(self, key: str) -> Any:
        """Return a client of the one node that has a key's slot.

        Raises:
            redis.exceptions.ConnectionError: no node answers, or none has it.
            redis.exceptions.ResponseError: a node refuses to say which.
        """
        cluster: Any = self._cluster()
        try:
            return cluster.get_redis_connection(cluster.get_node_from_key(key))
        except RedisClusterException as error:
            raise ConnectionError(str(error)) from error

    def close(self) -> None:
        """Close the connections; it may be used again."""
        with self._lock:
            made, self._made = self._made, None
        if made is not None:
            made.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _cluster(self) -> RedisCluster:
        made = self._made
        if made is None:
            with self._lock:
                made = self._made
                if made is None:
                    nodes = [ClusterNode(*member) for member in self._members]  # type: ignore[no-untyped-call]
                    try:
                        made = self._made = _Cluster(startup_nodes=nodes, **self._options)
                    except RedisClusterException as error:  # no error of redis-py's usual ones
                        raise _refusal(error) or ConnectionError(str(error)) from error
        return made


class _Cluster(RedisCluster):
    """redis-py's client, which also follows ASK to a node that has no slot yet: to itself that one is unknown."""

    def get_node(self, host: Any = None, port: Any = None, node_name: Any = None) -> Any:
        """Return a node by its name; one that is not known yet is known from then on."""
        found = super().get_node(host, port, node_name)  # type: ignore[no-untyped-call]
        if found is None and node_name:
            new_host, _, new_port = str(node_name).rpartition(":")
            new = ClusterNode(new_host, int(new_port), PRIMARY)  # type: ignore[no-untyped-call]
            found = self.nodes_manager.nodes_cache.setdefault(new.name, new)
        return found


def _refusal(error: BaseException) -> RedisError | None:
    """Return what a node has answered; redis-py calls every refusal a node that is in no cluster."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ResponseError | AuthenticationError):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None


def node_of(client: redis.Redis, key: str) -> redis.Redis:
    """Return the client for commands that go together with a key's: of a cluster its node's own, else the same.

    Raises:
        redis.exceptions.ConnectionError: no node of the cluster answers, or none has the key's slot.
    """
    if isinstance(client, LazyCluster):
        node: redis.Redis = client.node(key)
        return node
    return client


HEALTH_CHECK_SECONDS: Final = 15
MAX_CONNECTIONS: Final = 64


def connect(
    url: str, *, timeout_seconds: float, retry: Retry | None = None, known: MasterAddress | None = None
) -> redis.Redis:
    """Return a client that gives up after ``timeout_seconds``; nothing is sent yet.

    redis-py's own defaults try ten times at 5 s: a reader would hang for a minute on a silent server. Here a
    connection that the server has closed meanwhile is tried once more (every step may be repeated); a silence is not.

    Args:
        url: as `redis_url` reads it. Behind Sentinels each connection is made to the master of that moment. Of a
            cluster it is a `redis.RedisCluster` in all but name: commands of one key, pipelines of one slot.
        timeout_seconds: for the connection and for each reply.
        retry: what to try again, and how; default: a connection that was found closed, once.
        known: is updated with the master's address, behind Sentinels.

    Raises:
        ConfigurationError: the URL can't be used.
    """
    parsed = read_url(url)
    retry = retry or Retry(NoBackoff(), 1, supported_errors=(ConnectionError,))
    if parsed.topology is Topology.CLUSTER:
        return cast("redis.Redis", LazyCluster(parsed, socket_options(url, timeout_seconds), retry))
    with readable(url):
        pool = _MasterPool.from_url(
            parsed.node_url,
            # More threads than this share connections; they wait for one no longer than for a reply.
            max_connections=MAX_CONNECTIONS,
            timeout=timeout_seconds,
            **socket_options(url, timeout_seconds),
            health_check_interval=HEALTH_CHECK_SECONDS,
            retry=retry,
        )
    if parsed.topology is Topology.SENTINEL:
        pool.resolver = lead_to_master(pool, parsed, known or MasterAddress(), timeout_seconds)
    pack_bytes_only(pool)
    # It owns the pool: closing it closes the connections.
    return redis.Redis.from_pool(pool)


def connect_to_any(url: str, *, timeout_seconds: float, known: MasterAddress | None = None) -> redis.Redis:
    """Return a client for what any node of a cluster does, such as to subscribe; else as `connect`.

    At each connecting it goes to the next one of those that the URL names.
    """
    parsed = read_url(url)
    if parsed.topology is not Topology.CLUSTER:
        return connect(url, timeout_seconds=timeout_seconds, known=known)
    client = connect(parsed.node_url, timeout_seconds=timeout_seconds)
    connection_class = SentinelManagedSSLConnection if parsed.uses_tls else SentinelManagedConnection
    resolve_by(client.connection_pool, RoundRobin(parsed.members), connection_class)
    return client


class _MasterPool(BlockingConnectionPool):
    """A pool that behind Sentinels hands out no connection to a node that is known to be the master no longer."""

    resolver: SentinelResolver | None = None

    def get_connection(self, *args: Any, **options: Any) -> Any:
        """Return a connection, as redis-py does."""
        if self.resolver is not None:
            self.resolver.poll()
        connection: Any = super().get_connection(*args, **options)  # type: ignore[no-untyped-call]
        if self.resolver is not None and self.resolver.has_moved_from((connection.host, connection.port)):
            try:
                connection.disconnect()
                connection.connect()
            except BaseException:
                self.release(connection)  # type: ignore[no-untyped-call]
                raise
        return connection


def open_pubsub(client: redis.Redis) -> Any:
    """Return a `PubSub` of a client. By itself redis-py would add a handler to the application's logging."""
    return client.pubsub(push_handler_func=lambda message: message)  # type: ignore[no-untyped-call]


@contextmanager
def translated(query: str | None = None) -> Iterator[None]:
    """Turn every error of redis-py, and of the socket below it, into CacheUnavailable, its cause kept."""
    try:
        yield
    except (RedisError, RedisClusterException, OSError) as error:
        raise CacheUnavailable(f"the cache's Redis can't be used: {reason(error)}", query=query) from error


def reason(error: Exception) -> str:
    """Describe an error of redis-py, without secrets."""
    if isinstance(error, AuthenticationError):
        return "it refuses this user or password"
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, ResponseError):
        return f"it answered {str(error)[:200]!r}"
    return f"{type(error).__name__}: {str(error)[:200]}"
