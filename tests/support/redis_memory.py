"""How much memory a Redis may use, and what it does about more, for as long as a test needs that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import redis


@contextmanager
def limited(client: redis.Redis, maxmemory: int, policy: str) -> Iterator[None]:
    """Set both; at the end they are as before, for the next test on this server."""
    before = client.config_get("maxmemory*")
    client.config_set("maxmemory-policy", policy)
    client.config_set("maxmemory", maxmemory)
    try:
        yield
    finally:
        for name in ("maxmemory", "maxmemory-policy"):
            client.config_set(name, before[name])


@contextmanager
def full(client: redis.Redis) -> Iterator[None]:
    """Let a server refuse whatever needs memory."""
    with limited(client, 1, "noeviction"):
        yield
