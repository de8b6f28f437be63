"""redis-py itself: the baselines (GET of the same bytes, nothing decoded) and its client-side cache."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager

import redis
import redis.asyncio
from redis.cache import CacheConfig
from redis.connection import CacheProxyConnection

from benchmarks.contenders.contender import AsyncContender, Course, SyncContender
from benchmarks.contenders.ours import seed
from benchmarks.payloads import Value
from benchmarks.seeding import Seeder


class _SameBytes:
    """Our entries, read as they stand: what a baseline reads is what our reader reads."""

    def __init__(self, course: Course) -> None:
        seed(course)
        with course.place.plain() as client:
            seeder = Seeder(client, course.place.namespace, course.value_of)
            self.keys = {number: seeder.key(number).entry for number in course.numbers}
            self.raw = {number: seeder.raw(number) for number in course.numbers}


class RedisPyGet(SyncContender):
    """The baseline of the sync modes: one client, its default pool."""

    title = "redis-py GET"

    def set_up(self) -> None:
        self._same = _SameBytes(self.course)
        self._client = redis.Redis.from_url(self.course.place.cache_url)

    def reader(self) -> Callable[[int], Value]:
        get, keys = self._client.get, self._same.keys
        return lambda number: get(keys[number])

    def expected(self, number: int) -> Value:
        return self._same.raw[number]

    def close(self) -> None:
        self._client.close()


class RedisPyClientSideCache(RedisPyGet):
    """redis-py's own in-process cache (RESP3, CLIENT TRACKING by key)."""

    title = "redis-py client-side cache"
    is_local = True

    def set_up(self) -> None:
        self._same = _SameBytes(self.course)
        self._lifted = ExitStack()
        if _is_older(self.course.place.version, CacheProxyConnection.MIN_ALLOWED_VERSION):
            self.note = f"its check for Redis ≥ {CacheProxyConnection.MIN_ALLOWED_VERSION} is lifted"
            self._lifted.enter_context(_check_lifted())
        most = len(self.course.numbers) * 2
        self._client = redis.Redis.from_url(
            self.course.place.cache_url, protocol=3, cache_config=CacheConfig(max_size=most)
        )

    def close(self) -> None:
        super().close()
        self._lifted.close()


class RedisAsyncioGet(AsyncContender):
    """The baseline of the async modes: one client, its default pool."""

    title = "redis.asyncio GET"

    async def set_up(self) -> None:
        self._same = _SameBytes(self.course)
        self._client = redis.asyncio.Redis.from_url(self.course.place.cache_url)

    def reader(self) -> Callable[[int], Awaitable[Value]]:
        get, keys = self._client.get, self._same.keys
        return lambda number: get(keys[number])

    def expected(self, number: int) -> Value:
        return self._same.raw[number]

    async def close(self) -> None:
        await self._client.aclose()


@contextmanager
def _check_lifted() -> Iterator[None]:
    """Let redis-py's cache work on a Redis that has what it needs (6.0), though redis-py asks for a later one."""
    asked = CacheProxyConnection.MIN_ALLOWED_VERSION
    CacheProxyConnection.MIN_ALLOWED_VERSION = "6.0.0"
    try:
        yield
    finally:
        CacheProxyConnection.MIN_ALLOWED_VERSION = asked


def _is_older(version: str, than: str) -> bool:
    return [int(part) for part in version.split(".")[:3]] < [int(part) for part in than.split(".")]
