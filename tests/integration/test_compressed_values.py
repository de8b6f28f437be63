"""A large value on its way: compressed by the worker's flow, in Redis, and as a reader gets it."""

from __future__ import annotations

from typing import Any, TypedDict

import redis

from api_client import get_cached
from api_client.protocol.entry import decode_header
from refresher.embedded import RedisServer
from refresher.testing import InlineCache


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
