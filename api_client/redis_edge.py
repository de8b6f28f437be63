"""The edge to redis-py: how its clients are made, and the one place where its errors become ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import redis
from redis import BlockingConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, ConnectionError, RedisError, ResponseError, TimeoutError
from redis.retry import Retry

from api_client.environment import without_password
from api_client.errors import CacheUnavailable, ConfigurationError

HEALTH_CHECK_SECONDS: Final = 15
MOST_CONNECTIONS: Final = 64


def connect(url: str, *, timeout_seconds: float, retry: Retry | None = None) -> redis.Redis:
    """Return a client that gives up after ``timeout_seconds``; nothing is sent yet.

    redis-py's own defaults try ten times at 5 s: a reader would hang for a minute on a silent server. Here a
    connection that the server has closed meanwhile is tried once more (every step may be repeated); a silence is not.

    Args:
        url: redis://, rediss:// or unix://.
        timeout_seconds: for the connection and for each reply.
        retry: what to try again, and how; default: a connection that was found closed, once.

    Raises:
        ConfigurationError: redis-py can't use the URL.
    """
    with _readable(url):
        pool = BlockingConnectionPool.from_url(
            url,
            # More threads than this share connections; they wait for one no longer than for a reply.
            max_connections=MOST_CONNECTIONS,
            timeout=timeout_seconds,
            **_socket_options(url, timeout_seconds),
            health_check_interval=HEALTH_CHECK_SECONDS,
            retry=retry or Retry(NoBackoff(), 1, supported_errors=(ConnectionError,)),
        )
    # It owns the pool: closing it closes the connections.
    return redis.Redis.from_pool(pool)


def connection_maker(url: str, *, timeout_seconds: float) -> Callable[[], Any]:
    """Return what makes single connections of redis-py, not connected yet, for `connections`.

    They speak RESP2, whose replies come in the order of the requests and with nothing between them.

    Raises:
        ConfigurationError: redis-py can't use the URL.
    """
    with _readable(url):
        pool = redis.ConnectionPool.from_url(
            url, protocol=2, **_socket_options(url, timeout_seconds), retry=Retry(NoBackoff(), 0)
        )
    return lambda: pool.connection_class(**pool.connection_kwargs)


def async_connection_maker(url: str, *, timeout_seconds: float) -> Callable[[], Any]:
    """Return what makes single connections of redis.asyncio, as `connection_maker` does.

    Raises:
        ConfigurationError: redis-py can't use the URL.
    """
    # Imported here: an application that never awaits need not load asyncio.
    import redis.asyncio
    from redis.asyncio.retry import Retry as AsyncRetry

    with _readable(url):
        pool = redis.asyncio.ConnectionPool.from_url(
            url, protocol=2, **_socket_options(url, timeout_seconds), retry=AsyncRetry(NoBackoff(), 0)
        )
    return lambda: pool.connection_class(**pool.connection_kwargs)


def _socket_options(url: str, timeout_seconds: float) -> dict[str, Any]:
    options: dict[str, Any] = {"socket_connect_timeout": timeout_seconds, "socket_timeout": timeout_seconds}
    if not url.startswith("unix:"):  # a unix socket has none, and redis-py refuses the word
        options["socket_keepalive"] = True
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
    except (RedisError, OSError) as error:
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
