"""Single connections of redis-py: made for a URL, named, led to the master.

redis-py does TLS, authentication and URL options; what goes over the connections is `pool`'s and `multiplexed`'s.
"""

from __future__ import annotations

# Or socket.getaddrinfo() imports it at the first connection, where a signal handler's exception can leave the import's
# lock held: each thread that connects would then wait for it forever.
import encodings.idna  # noqa: F401
import functools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError
from redis.retry import Retry
from redis.sentinel import SentinelManagedConnection, SentinelManagedSSLConnection

from api_client._version import __version__
from api_client.config.environment import without_password
from api_client.config.redis_url import RedisUrl, Topology, read_url
from api_client.errors import ConfigurationError
from api_client.protocol.lease import process_identity
from api_client.transport.sentinel import MasterAddress, SentinelResolver
from api_client.transport.sockets import keepalive_options
from api_client.transport.wire import pack_bytes_only

if TYPE_CHECKING:
    from api_client.transport.aio_sentinel import AsyncSentinelResolver

R = TypeVar("R")

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


class ConnectionMaker(Generic[R]):
    """Makes single connections of redis-py, sync or async, not connected yet.

    They speak RESP2, whose replies come in the order of the requests and with nothing between them.

    Args:
        pool: whose connections; nothing else of it is used.
        resolver: behind Sentinels, what knows where the master is.
    """

    def __init__(self, pool: Any, resolver: R | None = None) -> None:
        self._class, self._options = pool.connection_class, _driver_info() | pool.connection_kwargs
        self.resolver: R | None = resolver

    def __call__(self) -> Any:
        """Return a new one."""
        return self._class(**self._options)


def connection_maker(
    url: str, *, timeout_seconds: float, known: MasterAddress | None = None, who: str = READER
) -> ConnectionMaker[SentinelResolver]:
    """Return what makes single connections, as sync readers and workers use them.

    Args:
        url, timeout_seconds, known: as for `connect`.
        who: begins the connections' names: `READER` or `WORKER`.

    Raises:
        ConfigurationError: the URL can't be used.
    """
    told = read_url(url)
    with readable(url):
        pool = redis.ConnectionPool.from_url(
            told.node_url, protocol=2, **socket_options(url, timeout_seconds), retry=Retry(NoBackoff(), 0),
            redis_connect_func=giving_name(who),
        )  # fmt: skip
    pack_bytes_only(pool)
    if told.topology is not Topology.SENTINEL:
        return ConnectionMaker(pool)
    return ConnectionMaker(pool, lead_to_master(pool, told, known or MasterAddress(), timeout_seconds))


def async_connection_maker(
    url: str, *, timeout_seconds: float, known: MasterAddress | None = None
) -> ConnectionMaker[AsyncSentinelResolver]:
    """Return what makes single connections of redis.asyncio, as `connection_maker` does.

    Raises:
        ConfigurationError: the URL can't be used.
    """
    # Imported here: an application that never awaits need not load asyncio.
    import redis.asyncio
    from redis.asyncio.retry import Retry as AsyncRetry
    from redis.asyncio.sentinel import SentinelManagedConnection, SentinelManagedSSLConnection

    from api_client.transport.aio_sentinel import AsyncSentinelResolver

    told, resolver = read_url(url), None
    with readable(url):
        pool = redis.asyncio.ConnectionPool.from_url(
            told.node_url, protocol=2, **socket_options(url, timeout_seconds), retry=AsyncRetry(NoBackoff(), 0),
            redis_connect_func=giving_name_async(READER),
        )  # fmt: skip
    if told.topology is Topology.SENTINEL:
        options = _sentinel_options(told, pool)
        resolver = AsyncSentinelResolver(
            known or MasterAddress(), told.master_name, told.members, options, timeout_seconds=timeout_seconds
        )
        connection_class = SentinelManagedSSLConnection if told.uses_tls else SentinelManagedConnection
        resolve_by(pool, resolver, connection_class)
    return ConnectionMaker(pool, resolver)


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


def _sentinel_options(told: RedisUrl, pool: Any) -> dict[str, Any]:
    """Return user and password for the Sentinels; over TLS what the data nodes' connections know of certificates."""
    options: dict[str, Any] = dict(told.sentinel_options)
    if told.uses_tls:
        tls = {name: value for name, value in pool.connection_kwargs.items() if name.startswith("ssl_")}
        options |= {"ssl": True, **tls}
    return options


def lead_to_master(pool: Any, told: RedisUrl, known: MasterAddress, timeout_seconds: float) -> SentinelResolver:
    """Have a pool's connections look for the master when they connect; return what resolves it."""
    options = _sentinel_options(told, pool)
    resolver = SentinelResolver(known, told.master_name, told.members, options, timeout_seconds=timeout_seconds)
    resolve_by(pool, resolver, SentinelManagedSSLConnection if told.uses_tls else SentinelManagedConnection)
    return resolver


def resolve_by(pool: Any, resolver: object, connection_class: type) -> None:
    """Have a pool's connections ask ``resolver`` where to connect."""
    pool.connection_class = connection_class
    options = {name: value for name, value in pool.connection_kwargs.items() if name not in {"host", "port"}}
    pool.connection_kwargs = options | {"connection_pool": resolver}


def socket_options(url: str, timeout_seconds: float) -> dict[str, Any]:
    """Return timeouts and keepalive, in redis-py's words."""
    options: dict[str, Any] = {"socket_connect_timeout": timeout_seconds, "socket_timeout": timeout_seconds}
    if not url.startswith("unix:"):  # a unix socket has none, and redis-py refuses the word
        options |= {"socket_keepalive": True, "socket_keepalive_options": keepalive_options()}
    return options


@contextmanager
def readable(url: str) -> Iterator[None]:
    """Raise a ConfigurationError where redis-py can't read a URL."""
    try:
        yield
    except ValueError:
        # redis-py's own words may quote a part of the password.
        allowed = "allowed is a URL that redis-py can read, special characters in user and password percent-encoded"
        raise ConfigurationError("CACHE_REDIS_URL", f"'{without_password(url)}'", allowed) from None
