"""Single connections of redis-py, made for a URL, named, and directed to the master.

redis-py does TLS, authentication and URL options; `pool` and `multiplexed` do the requests and replies.
"""

from __future__ import annotations

# Otherwise socket.getaddrinfo() imports it at the first connection, where a signal handler's exception can leave the
# import lock held, and every thread that connects would wait for it forever.
import encodings.idna  # noqa: F401
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Generic, NamedTuple, TypeVar

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
from api_client.transport.sentinel import AsyncSentinelResolver, MasterAddress, SentinelResolver
from api_client.transport.sockets import keepalive_options
from api_client.transport.wire import pack_bytes_only

R = TypeVar("R")

READER: Final = "reader"
WORKER: Final = "refresher"


class NamedConnection(NamedTuple):
    """A connection's name: `READER` or `WORKER`, the release, and the process as lease records name it."""

    role: str
    version: str
    process: str


def read_name(name: str) -> NamedConnection | None:
    """Parse a connection's name; return None if it is not one of ours."""
    parts = name.split("/", 2)
    return (
        NamedConnection(*parts) if len(parts) == len(NamedConnection._fields) and parts[0] in {READER, WORKER} else None
    )


def name_on_connect(role: str) -> Callable[[Any], None]:
    """Return a connect hook for redis-py that also names the connection, unless its URL does.

    A server that refuses names is used nevertheless.
    """

    def begin(connection: Any) -> None:
        connection.on_connect()
        if not connection.client_name:
            connection.send_command(*_naming_command(role))
            with suppress(ResponseError):
                connection.read_response()

    return begin


async def name_reader(connection: Any) -> None:
    """Name an open connection of redis.asyncio, as `name_on_connect` does.

    Not by a hook, since redis-py 8.1 then calls a function that Python 3.14 deprecates, and warnings may be errors.
    """
    if not connection.client_name:
        await connection.send_command(*_naming_command(READER))
        with suppress(ResponseError):
            await connection.read_response()


def _naming_command(role: str) -> tuple[str, ...]:
    # Computed per connection, because a forked process connects anew.
    return "CLIENT", "SETNAME", f"{role}/{__version__}/{process_identity()}"


class ConnectionMaker(Generic[R]):
    """Makes single connections of redis-py, sync or async, that are not connected yet.

    They speak RESP2, whose replies come in the order of the requests with nothing in between.

    Args:
        pool: makes the connections, and is not used otherwise.
        resolver: finds the master behind Sentinels.
    """

    def __init__(self, pool: Any, resolver: R | None = None) -> None:
        self.pool: Any = pool
        self._class, self._options = pool.connection_class, _driver_info() | pool.connection_kwargs
        self.resolver: R | None = resolver

    def __call__(self) -> Any:
        """Return a new connection."""
        return self._class(**self._options)


def connection_maker(
    url: str, *, timeout_seconds: float, known: MasterAddress | None = None, role: str = READER
) -> ConnectionMaker[SentinelResolver]:
    """Return a maker of single connections for sync readers and workers.

    Args:
        url, timeout_seconds, known: as for `connect`.
        role: `READER` or `WORKER`, for the connections' names.

    Raises:
        ConfigurationError: the URL can't be used.
    """
    parsed = read_url(url)
    with readable(url):
        pool = redis.ConnectionPool.from_url(
            parsed.node_url, protocol=2, **socket_options(url, timeout_seconds), retry=Retry(NoBackoff(), 0),
            redis_connect_func=name_on_connect(role),
        )  # fmt: skip
    pack_bytes_only(pool)
    if parsed.topology is not Topology.SENTINEL:
        return ConnectionMaker(pool)
    return ConnectionMaker(pool, lead_to_master(pool, parsed, known or MasterAddress(), timeout_seconds))


def async_connection_maker(
    url: str, *, timeout_seconds: float, known: MasterAddress | None = None
) -> ConnectionMaker[AsyncSentinelResolver]:
    """Return a maker of single connections of redis.asyncio, as `connection_maker` does for sync ones.

    Raises:
        ConfigurationError: the URL can't be used.
    """
    # Imported here, so that an application that never awaits does not load asyncio.
    import redis.asyncio
    from redis.asyncio.retry import Retry as AsyncRetry
    from redis.asyncio.sentinel import SentinelManagedConnection, SentinelManagedSSLConnection

    parsed = read_url(url)
    with readable(url):
        pool = redis.asyncio.ConnectionPool.from_url(
            parsed.node_url, protocol=2, **socket_options(url, timeout_seconds), retry=AsyncRetry(NoBackoff(), 0)
        )
    if parsed.topology is not Topology.SENTINEL:
        return ConnectionMaker(pool)
    resolver = AsyncSentinelResolver(_resolver(pool, parsed, known or MasterAddress(), timeout_seconds))
    resolve_by(pool, resolver, SentinelManagedSSLConnection if parsed.uses_tls else SentinelManagedConnection)
    return ConnectionMaker(pool, resolver)


@functools.cache
def _driver_info() -> dict[str, Any]:
    """Return the driver info of connections, looked up once.

    Otherwise redis-py reads the package's metadata at each connection, and so imports in the middle of a read, where a
    signal handler's exception can leave CPython's import lock held.
    """
    try:
        from redis.driver_info import DriverInfo
    except ImportError:  # an older redis-py looks it up at import
        return {}
    return {"driver_info": DriverInfo()}


def _resolver(pool: Any, parsed: RedisUrl, known: MasterAddress, timeout_seconds: float) -> SentinelResolver:
    """Return the resolver of the master, one for all connections that share ``known``."""
    if known.resolver is None:
        options: dict[str, Any] = dict(parsed.sentinel_options)
        if parsed.uses_tls:  # the certificate options of the connections to data nodes
            tls = {name: value for name, value in pool.connection_kwargs.items() if name.startswith("ssl_")}
            options |= {"ssl": True, **tls}
        known.resolver = SentinelResolver(
            known, parsed.master_name, parsed.members, options, timeout_seconds=timeout_seconds
        )
    return known.resolver


def lead_to_master(pool: Any, parsed: RedisUrl, known: MasterAddress, timeout_seconds: float) -> SentinelResolver:
    """Make a pool's connections look for the master when they connect; return the resolver."""
    resolver = _resolver(pool, parsed, known, timeout_seconds)
    resolve_by(pool, resolver, SentinelManagedSSLConnection if parsed.uses_tls else SentinelManagedConnection)
    return resolver


def resolve_by(pool: Any, resolver: object, connection_class: type) -> None:
    """Make a pool's connections ask ``resolver`` for their address."""
    pool.connection_class = connection_class
    options = {name: value for name, value in pool.connection_kwargs.items() if name not in {"host", "port"}}
    pool.connection_kwargs = options | {"connection_pool": resolver}


def socket_options(url: str, timeout_seconds: float) -> dict[str, Any]:
    """Return timeouts and keepalive as options of redis-py."""
    options: dict[str, Any] = {"socket_connect_timeout": timeout_seconds, "socket_timeout": timeout_seconds}
    if not url.startswith("unix:"):  # a unix socket has no keepalive, and redis-py refuses the option
        options |= {"socket_keepalive": True, "socket_keepalive_options": keepalive_options()}
    return options


@contextmanager
def readable(url: str) -> Iterator[None]:
    """Raise a ConfigurationError if redis-py can't read a URL."""
    try:
        yield
    except ValueError:
        # redis-py's own message may quote a part of the password.
        allowed = "expected a URL that redis-py can read, special characters in user and password percent-encoded"
        raise ConfigurationError("CACHE_REDIS_URL", f"'{without_password(url)}'", allowed) from None
