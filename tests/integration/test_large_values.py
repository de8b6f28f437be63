"""A large value: compressed by the worker's flow, and loaded once where Redis has no room for it."""

from __future__ import annotations

import os
from typing import Any, TypedDict

import pytest
import redis

from api_client import RefreshFailed, get_cached
from api_client.protocol.entry import decode_header
from refresher.embedded import RedisServer
from refresher.testing import InlineCache

VALUE_BYTES = 400_000


class Row(TypedDict):
    id: int
    name: str


ROWS = [Row(id=number, name=f"person {number}") for number in range(2_000)]


def stored(cache: InlineCache, server: RedisServer, name: str) -> tuple[bool, int]:
    """Return whether the entry in Redis is compressed, and its size in bytes."""
    key = cache.client.key(name)
    with redis.Redis.from_url(server.url(0)) as client:
        raw: Any = client.get(key.entry)
    return decode_header(raw, key.digest).is_compressed, len(raw)


def test_a_large_value_is_compressed_in_redis_and_read_as_if_it_were_not(clean_redis: RedisServer) -> None:
    with InlineCache(redis_url=clean_redis.url(0)) as cache:
        cache.answer("rows", ROWS)
        cache.answer("few", ROWS[:20])
        for _ in range(2):  # a miss, and a hit
            assert get_cached("rows", type=list[Row]) == get_cached("rows") == ROWS
            assert get_cached("few") == ROWS[:20]
        (is_compressed, size), (few_are, _) = stored(cache, clean_redis, "rows"), stored(cache, clean_redis, "few")
        assert (is_compressed, few_are) == (True, False)
        assert size < 20_000


def fill(client: redis.Redis) -> None:
    """Leave room for anything but a large value."""
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", int(client.info("memory")["used_memory"]) + VALUE_BYTES // 2)


def test_a_waiting_read_is_told_at_once_and_nothing_is_loaded_again_and_again(own_redis: RedisServer) -> None:
    loads: list[int] = []

    def load(n: int) -> bytes:
        loads.append(n)
        return os.urandom(VALUE_BYTES)

    with InlineCache(redis_url=own_redis.url()) as cache, redis.Redis.from_url(own_redis.url()) as client:
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
