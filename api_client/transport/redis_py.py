"""The edge to redis-py: how its clients are made, and the one place where its errors become ours."""

from __future__ import annotations

# Or socket.getaddrinfo() imports it at the first connection, where a signal handler's exception can leave the import's
# lock held: each thread that connects would then wait for it forever.
import encodings.idna  # noqa: F401
import functools
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, cast

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

from api_client._version import __version__
from api_client.config.environment import without_password
from api_client.config.redis_url import RedisUrl, Topology, read_url
from api_client.errors import CacheUnavailable, ConfigurationError
from api_client.protocol.lease import process_identity
from api_client.transport.pool import keepalive_options
from api_client.transport.sentinel import MasterAddress, RoundRobin, SentinelResolver
from api_client.transport.wire import pack_bytes_only


class _NodePool(ConnectionPool):
    """The pool of one node: redis-py's cluster passes no packer on to its connections."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        pack_bytes_only(self)


class LazyCluster:
    """A `RedisCluster` that asks nobody before it is used. Thread-safe.

    Args:
        url: the nodes to ask first, and the options of the connections to all.
        options: of the sockets.
        retry: what to try again of a command, and how; the slots are asked for anew before each try.
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
            redis.exceptions.ResponseError: a node refuses to tell which.
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
    told: BaseException | None = error
    while told is not None:
        if isinstance(told, ResponseError | AuthenticationError):
            return told
        told = told.__cause__ or told.__context__
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


READER: Final = "reader"
WORKER: Final = "refresher"


class NamedConnection(NamedTuple):
    """What a name says: who connected, of which release, and the process, as lease records name it."""

    who: str
    version: str
    process: str


def read_name(name: str) -> NamedConnection | None:
    """Return what a connection's name says; None: it is not one of ours."""
    parts = name.split("/", 2)
    return (
        NamedConnection(*parts) if len(parts) == len(NamedConnection._fields) and parts[0] in {READER, WORKER} else None
    )


def giving_name(who: str) -> Callable[[Any], None]:
    """Return what begins a connection of redis-py as it would itself, and names it unless its URL does.

    A server that refuses names is used all the same.
    """

    def begin(connection: Any) -> None:
        connection.on_connect()
        if not connection.client_name:
            connection.send_command(*_command(who))
            with suppress(ResponseError):
                connection.read_response()

    return begin


def giving_name_async(who: str) -> Callable[[Any], Awaitable[None]]:
    """As `giving_name`, of redis.asyncio."""

    async def begin(connection: Any) -> None:
        await connection.on_connect()
        if not connection.client_name:
            await connection.send_command(*_command(who))
            with suppress(ResponseError):
                await connection.read_response()

    return begin


def _command(who: str) -> tuple[str, ...]:
    # At each connecting: a process that was forked connects anew.
    return "CLIENT", "SETNAME", f"{who}/{__version__}/{process_identity()}"


if TYPE_CHECKING:
    from api_client.transport.aio_sentinel import AsyncMasterFinder

HEALTH_CHECK_SECONDS: Final = 15
MAX_CONNECTIONS: Final = 64


def connect(
    url: str, *, timeout_seconds: float, retry: Retry | None = None, known: MasterAddress | None = None
) -> redis.Redis:
    """Return a client that gives up after ``timeout_seconds``; nothing is sent yet.

    redis-py's own defaults try ten times at 5 s: a reader would hang for a minute on a silent server. Here a
    connection that the server has closed meanwhile is tried once more (every step may be repeated); a silence is not.

    Args:
        url: as `redis_url` reads it. Behind Sentinels each connection is made to whoever is the master then. Of a
            cluster it is a `redis.RedisCluster` in all but name: commands of one key, pipelines of one slot.
        timeout_seconds: for the connection and for each reply.
        retry: what to try again, and how; default: a connection that was found closed, once.
        known: is told where the master is, behind Sentinels.

    Raises:
        ConfigurationError: the URL can't be used.
    """
    told = read_url(url)
    retry = retry or Retry(NoBackoff(), 1, supported_errors=(ConnectionError,))
    if told.topology is Topology.CLUSTER:
        return cast("redis.Redis", LazyCluster(told, _socket_options(url, timeout_seconds), retry))
    with _readable(url):
        pool = _MasterPool.from_url(
            told.node_url,
            # More threads than this share connections; they wait for one no longer than for a reply.
            max_connections=MAX_CONNECTIONS,
            timeout=timeout_seconds,
            **_socket_options(url, timeout_seconds),
            health_check_interval=HEALTH_CHECK_SECONDS,
            retry=retry,
        )
    if told.topology is Topology.SENTINEL:
        pool.finder = _lead_to_master(pool, told, known or MasterAddress(), timeout_seconds)
    pack_bytes_only(pool)
    # It owns the pool: closing it closes the connections.
    return redis.Redis.from_pool(pool)


def connect_to_any(url: str, *, timeout_seconds: float, known: MasterAddress | None = None) -> redis.Redis:
    """Return a client for what any node of a cluster does, such as to subscribe; else as `connect`.

    At each connecting it goes to the next one of those that the URL names.
    """
    told = read_url(url)
    if told.topology is not Topology.CLUSTER:
        return connect(url, timeout_seconds=timeout_seconds, known=known)
    client = connect(told.node_url, timeout_seconds=timeout_seconds)
    connection_class = SentinelManagedSSLConnection if told.uses_tls else SentinelManagedConnection
    _let_find(client.connection_pool, RoundRobin(told.members), connection_class)
    return client


class _MasterPool(BlockingConnectionPool):
    """A pool that behind Sentinels hands out no connection to a node that is known to be the master no longer."""

    finder: SentinelResolver | None = None

    def get_connection(self, *args: Any, **options: Any) -> Any:
        """Return a connection, as redis-py does."""
        if self.finder is not None:
            self.finder.look()
        connection: Any = super().get_connection(*args, **options)  # type: ignore[no-untyped-call]
        if self.finder is not None and self.finder.has_moved_from((connection.host, connection.port)):
            try:
                connection.disconnect()
                connection.connect()
            except BaseException:
                self.release(connection)  # type: ignore[no-untyped-call]
                raise
        return connection


@functools.cache
def _driver_info() -> dict[str, Any]:
    """Return what connections say of their package, looked up once.

    Else redis-py reads the package's metadata at each connection, and imports for that in the middle of a read: an
    exception from a signal handler can leave CPython's lock of imports held.
    """
    try:
        from redis.driver_info import DriverInfo
    except ImportError:  # an older redis-py looks it up when it is imported
        return {}
    return {"driver_info": DriverInfo()}


class ConnectionMaker:
    """Makes single connections of redis-py, not connected yet, for `connections`.

    They speak RESP2, whose replies come in the order of the requests and with nothing between them.

    Args:
        pool: whose connections; nothing else of it is used.
        finder: who knows where the master is, behind Sentinels.
    """

    def __init__(self, pool: Any, finder: SentinelResolver | None = None) -> None:
        self._class, self._options = pool.connection_class, _driver_info() | pool.connection_kwargs
        self._finder = finder

    def __call__(self) -> Any:
        """Return a new one."""
        return self._class(**self._options)

    def look(self) -> None:
        """Ask the Sentinels, if there are any and it is due, whether the master is another one."""
        if self._finder is not None:
            self._finder.look()

    def close(self) -> None:
        """Close what was opened to find the way."""
        if self._finder is not None:
            self._finder.close()


class AsyncConnectionMaker:
    """Makes single connections of redis.asyncio, as `ConnectionMaker` does."""

    def __init__(self, pool: Any, finder: AsyncMasterFinder | None = None) -> None:
        self._class, self._options = pool.connection_class, _driver_info() | pool.connection_kwargs
        self._finder = finder

    def __call__(self) -> Any:
        """Return a new one."""
        return self._class(**self._options)

    async def look(self) -> None:
        """Ask the Sentinels, if there are any and it is due, whether the master is another one."""
        if self._finder is not None:
            await self._finder.look()


def connection_maker(
    url: str, *, timeout_seconds: float, known: MasterAddress | None = None, who: str = READER
) -> ConnectionMaker:
    """Return what makes single connections, as sync readers and workers use them.

    Args:
        url, timeout_seconds, known: as for `connect`.
        who: begins the connections' names, see `connection_names`.

    Raises:
        ConfigurationError: the URL can't be used.
    """
    told = read_url(url)
    with _readable(url):
        pool = redis.ConnectionPool.from_url(
            told.node_url, protocol=2, **_socket_options(url, timeout_seconds), retry=Retry(NoBackoff(), 0),
            redis_connect_func=giving_name(who),
        )  # fmt: skip
    pack_bytes_only(pool)
    if told.topology is not Topology.SENTINEL:
        return ConnectionMaker(pool)
    return ConnectionMaker(pool, _lead_to_master(pool, told, known or MasterAddress(), timeout_seconds))


def async_connection_maker(
    url: str, *, timeout_seconds: float, known: MasterAddress | None = None
) -> AsyncConnectionMaker:
    """Return what makes single connections of redis.asyncio, as `connection_maker` does.

    Raises:
        ConfigurationError: the URL can't be used.
    """
    # Imported here: an application that never awaits need not load asyncio.
    import redis.asyncio
    from redis.asyncio.retry import Retry as AsyncRetry
    from redis.asyncio.sentinel import SentinelManagedConnection, SentinelManagedSSLConnection

    from api_client.transport.aio_sentinel import AsyncMasterFinder

    told, finder = read_url(url), None
    with _readable(url):
        pool = redis.asyncio.ConnectionPool.from_url(
            told.node_url, protocol=2, **_socket_options(url, timeout_seconds), retry=AsyncRetry(NoBackoff(), 0),
            redis_connect_func=giving_name_async(READER),
        )  # fmt: skip
    if told.topology is Topology.SENTINEL:
        options = _sentinel_options(told, pool)
        finder = AsyncMasterFinder(
            known or MasterAddress(), told.master_name, told.members, options, timeout_seconds=timeout_seconds
        )
        connection_class = SentinelManagedSSLConnection if told.uses_tls else SentinelManagedConnection
        _let_find(pool, finder, connection_class)
    return AsyncConnectionMaker(pool, finder)


def _sentinel_options(told: RedisUrl, pool: Any) -> dict[str, Any]:
    """Return user and password for the Sentinels; over TLS what the data nodes' connections know of certificates."""
    options: dict[str, Any] = dict(told.sentinel_options)
    if told.uses_tls:
        tls = {name: value for name, value in pool.connection_kwargs.items() if name.startswith("ssl_")}
        options |= {"ssl": True, **tls}
    return options


def _lead_to_master(pool: Any, told: RedisUrl, known: MasterAddress, timeout_seconds: float) -> SentinelResolver:
    """Have a pool's connections look for the master when they connect; return who finds it."""
    options = _sentinel_options(told, pool)
    finder = SentinelResolver(known, told.master_name, told.members, options, timeout_seconds=timeout_seconds)
    _let_find(pool, finder, SentinelManagedSSLConnection if told.uses_tls else SentinelManagedConnection)
    return finder


def _let_find(pool: Any, finder: object, connection_class: type) -> None:
    pool.connection_class = connection_class
    options = {name: value for name, value in pool.connection_kwargs.items() if name not in {"host", "port"}}
    pool.connection_kwargs = options | {"connection_pool": finder}


def _socket_options(url: str, timeout_seconds: float) -> dict[str, Any]:
    options: dict[str, Any] = {"socket_connect_timeout": timeout_seconds, "socket_timeout": timeout_seconds}
    if not url.startswith("unix:"):  # a unix socket has none, and redis-py refuses the word
        options |= {"socket_keepalive": True, "socket_keepalive_options": keepalive_options()}
    return options


@contextmanager
def _readable(url: str) -> Iterator[None]:
    try:
        yield
    except ValueError:
        # redis-py's own words may quote a part of the password.
        allowed = "allowed is a URL that redis-py can read, special characters in user and password percent-encoded"
        raise ConfigurationError("CACHE_REDIS_URL", f"'{without_password(url)}'", allowed) from None


@contextmanager
def translated(query: str | None = None) -> Iterator[None]:
    """Turn every error of redis-py, and of the socket below it, into CacheUnavailable, its cause kept."""
    try:
        yield
    except (RedisError, RedisClusterException, OSError) as error:
        raise CacheUnavailable(f"the cache's Redis can't be used: {reason(error)}", query=query) from error


def reason(error: Exception) -> str:
    """Say in words what an error of redis-py means here; nothing in it is a secret."""
    if isinstance(error, AuthenticationError):
        return "it refuses this user or password"
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, ResponseError):
        return f"it answered {str(error)[:200]!r}"
    return f"{type(error).__name__}: {str(error)[:200]}"
