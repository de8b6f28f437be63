"""Clients of redis-py for tools and tests, and the translation of their errors (those of links: `health`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import redis
from redis import BlockingConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, RedisError
from redis.retry import Retry
from redis.sentinel import SentinelManagedConnection, SentinelManagedSSLConnection

from api_client.config.redis_url import Topology, read_url
from api_client.errors import CacheUnavailable
from api_client.transport.connection_maker import lead_to_master, readable, resolve_by, socket_options
from api_client.transport.link import CacheLink
from api_client.transport.sentinel import MasterAddress, RoundRobin, SentinelResolver
from api_client.transport.wire import pack_bytes_only, reason

T = TypeVar("T")

HEALTH_CHECK_SECONDS: Final = 15
MAX_CONNECTIONS: Final = 64


def connect(
    url: str, *, timeout_seconds: float, retry: Retry | None = None, known: MasterAddress | None = None
) -> redis.Redis:
    """Return a client that gives up after ``timeout_seconds``; nothing is sent yet.

    redis-py's defaults try ten times at 5 s each, so a reader would hang for a minute on a silent server. Here a
    request is sent once more if the server has closed the connection (every step may be repeated), but not after a
    silence.

    Args:
        url: a URL as `redis_url` reads it. Behind Sentinels each connection goes to the current master. For a cluster
            the client is a `ClusterClient`, for commands with one key.
        timeout_seconds: the timeout of the connection and of each reply.
        retry: the retry policy; default: once, after a connection was found closed.
        known: updated with the master's address, behind Sentinels.

    Raises:
        ConfigurationError: the URL can't be used.
    """
    parsed = read_url(url)
    retry = retry or Retry(NoBackoff(), 1, supported_errors=(ConnectionError,))
    if parsed.topology is Topology.CLUSTER:
        return ClusterClient(url, timeout_seconds, retry)
    with readable(url):
        pool = _BlockingMasterPool.from_url(
            parsed.node_url,
            # More threads than this share connections, and wait for one no longer than for a reply.
            max_connections=MAX_CONNECTIONS,
            timeout=timeout_seconds,
            **socket_options(url, timeout_seconds),
            health_check_interval=HEALTH_CHECK_SECONDS,
            retry=retry,
        )
    if parsed.topology is Topology.SENTINEL:
        pool.resolver = lead_to_master(pool, parsed, known or MasterAddress(), timeout_seconds)
    pack_bytes_only(pool)
    # The client owns the pool, so closing it closes the connections.
    return redis.Redis.from_pool(pool)


class ClusterClient(redis.Redis):
    """Client of a cluster, for commands with one key. Pipelines and commands without a key need a node. Thread-safe.

    It connects at the first use; errors are redis-py's.

    Args:
        url: the URL of some of the nodes.
        timeout_seconds: the timeout of the connection and of each reply.
        retry: the retry policy of a command.
    """

    def __init__(self, url: str, timeout_seconds: float, retry: Retry) -> None:
        # The pool only tells how to parse replies: as RESP2, which links speak.
        super().__init__(connection_pool=redis.ConnectionPool.from_url(read_url(url).node_url, protocol=2))
        self._link = CacheLink(url, timeout_seconds, timeout_seconds, patience=lambda exchange, _: exchange())
        self._timeout_seconds, self._retry = timeout_seconds, retry
        self._nodes: dict[str, redis.Redis] = {}

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Execute a command, as redis-py does."""
        if len(args) == 1 or " " in args[0]:
            raise redis.DataError(f"{args[0]} is for a node: see nodes_of()")
        command = tuple(word if isinstance(word, str | bytes | int) else repr(word) for word in args)
        (reply,) = self._tried(lambda: self._link.execute_all([command]))
        return self.parse_response(_Reply(reply), args[0], **options)  # type: ignore[no-untyped-call]

    def node_of(self, key: str) -> redis.Redis:
        """Return a client of the node that owns a key's slot.

        Raises:
            redis.exceptions.RedisError: no node tells which one that is.
        """
        routes = self._link.routes
        if routes.ready_owner(key) is None:
            self._tried(self._link.sync_clock)
        owner = routes.ready_owner(key)
        if owner is None:
            raise ConnectionError("no node is known to have this key")
        return self._client(routes.url_of(owner))

    def nodes(self) -> list[redis.Redis]:
        """Return a client of each node that has keys; the errors are those of `node_of`."""
        self._tried(self._link.sync_clock)
        return [self._client(url) for url in self._link.routes.urls()]

    def close(self) -> None:
        """Close the connections; the client may be used again."""
        self._link.close()
        for client in list(self._nodes.values()):
            client.close()

    def _client(self, url: str) -> redis.Redis:
        client = self._nodes.get(url)
        if client is None:
            made = connect(url, timeout_seconds=self._timeout_seconds, retry=self._retry)
            client = self._nodes.setdefault(url, made)
        return client

    def _tried(self, exchange: Callable[[], T]) -> T:
        def once() -> T:
            try:
                return exchange()
            except CacheUnavailable as error:
                raise error.__cause__ or ConnectionError(str(error)) from error

        return self._retry.call_with_retry(once, lambda _: None)


class _Reply:
    """Stand-in for a connection that has received a reply."""

    def __init__(self, reply: Any) -> None:
        self._reply = reply

    def read_response(self, **_: object) -> Any:
        """Return the reply, or raise it if it is an error."""
        if isinstance(self._reply, Exception):
            raise self._reply
        return self._reply


def node_of(client: redis.Redis, key: str) -> redis.Redis:
    """Return the client for a key's pipelines: in a cluster that of the key's node, otherwise the same client.

    Raises:
        redis.exceptions.RedisError: the cluster does not tell which node owns the key's slot.
    """
    return client.node_of(key) if isinstance(client, ClusterClient) else client


def nodes_of(client: redis.Redis) -> list[redis.Redis]:
    """Return a client for each node with keys of its own: the masters of a cluster, otherwise the same client."""
    return client.nodes() if isinstance(client, ClusterClient) else [client]


def connect_to_any(url: str, *, timeout_seconds: float, known: MasterAddress | None = None) -> redis.Redis:
    """Return a client for commands that any node of a cluster can run, such as SUBSCRIBE; otherwise as `connect`.

    Each of its connections goes to the next node of the URL.
    """
    parsed = read_url(url)
    if parsed.topology is not Topology.CLUSTER:
        return connect(url, timeout_seconds=timeout_seconds, known=known)
    client = connect(parsed.node_url, timeout_seconds=timeout_seconds)
    connection_class = SentinelManagedSSLConnection if parsed.uses_tls else SentinelManagedConnection
    resolve_by(client.connection_pool, RoundRobin(parsed.members), connection_class)
    return client


class MasterPool(redis.ConnectionPool):
    """A pool that, behind Sentinels, hands out no connection to a node known to be demoted."""

    resolver: SentinelResolver | None = None

    def get_connection(self, *args: Any, **options: Any) -> Any:
        """Return a connection, as redis-py does."""
        if self.resolver is not None:
            self.resolver.poll()
        connection: Any = super().get_connection(*args, **options)
        if self.resolver is not None and self.resolver.has_moved_from((connection.host, connection.port)):
            try:
                connection.disconnect()
                connection.connect()
            except BaseException:
                self.release(connection)
                raise
        return connection


class _BlockingMasterPool(MasterPool, BlockingConnectionPool):
    """A `MasterPool` whose callers wait while all connections are in use."""


def open_pubsub(client: redis.Redis) -> Any:
    """Return a `PubSub` of a client, without the handler that redis-py would add to the application's logging."""
    return client.pubsub(push_handler_func=lambda message: message)  # type: ignore[no-untyped-call]


@contextmanager
def translated() -> Iterator[None]:
    """Turn every error of redis-py and of the socket below it into a CacheUnavailable, keeping its cause."""
    try:
        yield
    except (RedisError, OSError) as error:
        raise CacheUnavailable(f"the cache's Redis (CACHE_REDIS_URL) can't be used: {reason(error)}") from error
