"""A Redis that is full and evicts nothing: small steps go on, and large values find no room."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import redis

from api_client import RefreshFailed, get_cached
from refresher.embedded import RedisServer
from refresher.testing import InlineCache

VALUE_BYTES = 400_000


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A server of the test's own."""
    with RedisServer.start() as started:
        yield started


def fill(client: redis.Redis) -> None:
    """Leave room for anything but a large value."""
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", int(client.info("memory")["used_memory"]) + VALUE_BYTES // 2)


def test_a_waiting_read_is_told_at_once_and_nothing_is_loaded_again_and_again(server: RedisServer) -> None:
    loads: list[int] = []

    def load(n: int) -> bytes:
        loads.append(n)
        return os.urandom(VALUE_BYTES)

    with InlineCache(redis_url=server.url()) as cache, redis.Redis.from_url(server.url()) as client:
        cache.answer("large", load)
        cache.answer("small", lambda n: n)
        assert len(get_cached("large", {"n": 1})) == VALUE_BYTES
        fill(client)
        for _ in range(3):
            with pytest.raises(RefreshFailed, match=r"Redis has no memory for it, and .*maxmemory") as caught:
                get_cached("large", {"n": 2})
            assert (caught.value.kind, caught.value.attempts) == ("cache_full", 1)
        assert loads == [1, 2]
        assert get_cached("small", {"n": 3}) == 3, "what has room is stored"
        assert len(get_cached("large", {"n": 1})) == VALUE_BYTES, "what was stored is read"
        client.config_set("maxmemory", 0)
        cache.advance("1m")
        assert len(get_cached("large", {"n": 2})) == VALUE_BYTES
