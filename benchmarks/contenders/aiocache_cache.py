"""aiocache on Redis."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ClassVar

from redis.asyncio import ConnectionPool

from benchmarks.contenders.contender import AsyncContender
from benchmarks.payloads import Value
from benchmarks.seeding import QUERY, TTL_SECONDS


class Aiocache(AsyncContender):
    """``cache.get``; JSON, the default of its Redis cache."""

    title = "aiocache"
    needs: ClassVar[tuple[str, ...]] = ("aiocache",)

    async def set_up(self) -> None:
        from aiocache import RedisCache

        parts = ConnectionPool.from_url(self.course.place.cache_url).connection_kwargs  # it takes no URL
        self._cache = RedisCache(
            endpoint=parts["host"],
            port=parts["port"],
            db=parts.get("db", 0),
            password=parts.get("password"),
            namespace=f"{self.course.place.namespace}:aiocache",
        )
        for number in self.course.numbers:
            await self._cache.set(f"{QUERY}:{number}", self.course.value_of(number), ttl=int(TTL_SECONDS))

    def reader(self) -> Callable[[int], Awaitable[Value]]:
        get = self._cache.get
        return lambda number: get(f"{QUERY}:{number}")

    async def close(self) -> None:
        await self._cache.close()
