"""A large value on its way: compressed by the worker's flow, in Redis, and as a reader gets it."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest
import redis

from api_client import DecodeError, ReaderSettings, get_cached
from api_client.client import CacheClient
from api_client.protocol.entry import decode_header
from refresher.embedded import RedisServer
from refresher.testing import InlineCache
from tests.support.waiting import MAX_WAIT_SECONDS


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


def test_a_reader_s_size_limit_applies_to_the_decompressed_value(clean_redis: RedisServer) -> None:
    with InlineCache(redis_url=clean_redis.url(0)) as cache:
        cache.answer("rows", ROWS)
        get_cached("rows")
        _, size = stored(cache, clean_redis, "rows")
        settings = ReaderSettings(
            redis_url=clean_redis.url(0), redis_timeout_seconds=MAX_WAIT_SECONDS,
            namespace=cache.client.settings.namespace, max_value_bytes=size,
        )  # fmt: skip
        with CacheClient(settings) as strict, pytest.raises(DecodeError, match=f"CACHE_MAX_VALUE_BYTES allows {size}"):
            strict.get("rows")
