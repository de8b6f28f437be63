"""Clients of redis-py, for tools and tests, and their errors as ours; those on a link become ours in `health`."""

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

    redis-py's own defaults try ten times at 5 s: a reader would hang for a minute on a silent server. Here a
    connection that the server has closed meanwhile is tried once more (every step may be repeated); a silence is not.

    Args:
        url: as `redis_url` reads it. Behind Sentinels each connection is made to the master of that moment. Of a
            cluster it is a `ClusterClient`: commands of one key.
        timeout_seconds: for the connection and for each reply.
        retry: what to try again, and how; default: a connection that was found closed, once.
        known: is updated with the master's address, behind Sentinels.

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


class ClusterClient(redis.Redis):
    """Commands of one key each, sent where that is. Pipelines, and what has no key, are a node's. Thread-safe.

    Connects when it is first used; errors are redis-py's.

    Args:
        url: of some of the nodes.
        timeout_seconds: for the connection and for each reply.
        retry: what to try again of a command, and how.
    """

    def __init__(self, url: str, timeout_seconds: float, retry: Retry) -> None:
        # It only says how replies are read: by RESP2, which links speak.
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
        """Return a client of the one node that has a key's slot.

        Raises:
            redis.exceptions.RedisError: no node says which that is.
        """
        routes = self._link.routes
        if routes.ready_owner(key) is None:
            self._tried(self._link.sync_clock)
        owner = routes.ready_owner(key)
        if owner is None:
            raise ConnectionError("no node is known to have this key")
        return self._client(routes.url_of(owner))

    def nodes(self) -> list[redis.Redis]:
        """Return a client of each node that has keys. Raises as `node_of`."""
        self._tried(self._link.sync_clock)
        return [self._client(url) for url in self._link.routes.urls()]

    def close(self) -> None:
        """Close the connections; it may be used again."""
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
    """A reply in the place of a connection that has received it."""

    def __init__(self, reply: Any) -> None:
        self._reply = reply

    def read_response(self, **_: object) -> Any:
        """Return it; raise an error reply."""
        if isinstance(self._reply, Exception):
            raise self._reply
        return self._reply


def node_of(client: redis.Redis, key: str) -> redis.Redis:
    """Return the client for commands that go together with a key's: of a cluster its node's own, else the same.

    Raises:
        redis.exceptions.RedisError: the cluster does not say which node has the key's slot.
    """
    return client.node_of(key) if isinstance(client, ClusterClient) else client


def nodes_of(client: redis.Redis) -> list[redis.Redis]:
    """Return a client for each node that has keys of its own: of a cluster its masters, else the same client."""
    return client.nodes() if isinstance(client, ClusterClient) else [client]


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


class MasterPool(redis.ConnectionPool):
    """A pool that behind Sentinels hands out no connection to a node that is known to be the master no longer."""

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
    """The same; callers wait for a connection while all are in use."""


def open_pubsub(client: redis.Redis) -> Any:
    """Return a `PubSub` of a client. By itself redis-py would add a handler to the application's logging."""
    return client.pubsub(push_handler_func=lambda message: message)  # type: ignore[no-untyped-call]


@contextmanager
def translated() -> Iterator[None]:
    """Turn every error of redis-py, and of the socket below it, into CacheUnavailable, its cause kept."""
    try:
        yield
    except (RedisError, OSError) as error:
        raise CacheUnavailable(f"the cache's Redis (CACHE_REDIS_URL) can't be used: {reason(error)}") from error
