"""aiocache's ``cached_stampede`` on Redis."""

from __future__ import annotations

from typing import Any, ClassVar

from redis.asyncio import BlockingConnectionPool, ConnectionPool

from benchmarks.stampede.notes import Mark, note
from benchmarks.stampede.origin import Origin
from benchmarks.stampede.strategies.strategy import AsyncCache, AsyncStrategy, Value
from benchmarks.stampede.terms import POOL_CONNECTIONS, POOL_WAIT_SECONDS


class Aiocache(AsyncStrategy):
    """Who finds nothing asks for a lock; the others of its process wait for at most its lease."""

    name = "aiocache"
    title = "aiocache"
    needs: ClassVar[tuple[str, ...]] = ("aiocache",)
    is_peer = True
    unseen: ClassVar[tuple[str, ...]] = ("contention", "ducked_out")
    cannot = (
        "Nothing is refreshed early or served stale. Its lock is waited for within a process alone: who meets another "
        "process's lock goes on and recomputes."
    )

    async def on_loop(self) -> AsyncCache:
        """Decorate the origin."""
        from aiocache import RedisCache, cached_stampede

        parts = ConnectionPool.from_url(self.terms.place.cache_url).connection_kwargs  # it takes no URL
        origin = self.origin()
        decorator: Any = cached_stampede(
            lease=self.terms.lease_seconds,
            ttl=self.terms.expires_seconds,
            key_builder=lambda function, number: str(number),
            cache=RedisCache,
            plugins=[_telling_plugin()],
            endpoint=parts["host"],
            port=parts["port"],
            db=parts.get("db", 0),
            password=parts.get("password"),
            namespace=self.prefix,
            pool_max_size=POOL_CONNECTIONS,
            connection_pool_class=BlockingConnectionPool,
            connection_pool_kwargs={"timeout": POOL_WAIT_SECONDS},
            timeout=POOL_WAIT_SECONDS,
        )
        return _Aiocache(decorator(origin.acompute), origin)


class _Aiocache(AsyncCache):
    def __init__(self, read: Any, origin: Origin) -> None:
        self._read, self._origin = read, origin

    async def read(self, number: int) -> Value:
        value: Value = await self._read(number)
        return value

    async def close(self) -> None:
        await self._read.cache.close()
        await self._origin.aclose()


def _telling_plugin() -> Any:
    """Return a plugin, aiocache's own way of hooking in, that tells of misses."""
    from aiocache.plugins import BasePlugin

    class TellingPlugin(BasePlugin):  # type: ignore[misc, unused-ignore] # no type information is shipped
        async def post_get(self, *args: Any, ret: Any = None, **kwargs: Any) -> None:
            if ret is None:
                note(Mark.MISS)

    return TellingPlugin()
