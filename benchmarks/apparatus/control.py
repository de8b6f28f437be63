"""Control database: a Redis that no cache uses, in which loaders in workers leave their marks."""

from __future__ import annotations

import functools
import os
from typing import Final

import redis

CONTROL_URL: Final = "BENCH_CONTROL_REDIS_URL"


def control() -> redis.Redis:
    """Return this process's client of the control database, whose address is in the environment."""
    return _client(os.getpid())


@functools.cache
def _client(pid: int) -> redis.Redis:  # a connection must not be shared with a forked child
    return redis.Redis.from_url(os.environ[CONTROL_URL])
