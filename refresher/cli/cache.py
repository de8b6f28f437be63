"""The cache of the environment, for commands that look into it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import redis
from redis.exceptions import RedisError

from api_client.config.environment import without_password
from api_client.errors import CacheUnavailable
from api_client.transport.redis_py import connect, reason

TIMEOUT_SECONDS: Final = 2.0


@contextmanager
def opened_cache(url: str) -> Iterator[redis.Redis]:
    """Open CACHE_REDIS_URL.

    Raises:
        CacheUnavailable: it can't be used; names it, without its password.
    """
    client = connect(url, timeout_seconds=TIMEOUT_SECONDS)
    try:
        yield client
    except (RedisError, OSError) as error:
        shown = without_password(url)
        raise CacheUnavailable(f"the cache at CACHE_REDIS_URL={shown} can't be used: {reason(error)}") from error
    finally:
        client.close()
