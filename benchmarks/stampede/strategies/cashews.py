"""What the three strategies of cashews have in common: its cache on Redis, and a middleware that tells."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, TypeAlias

from benchmarks.stampede.notes import Mark, note
from benchmarks.stampede.origin import Origin
from benchmarks.stampede.strategies.strategy import AsyncCache, AsyncStrategy, Value
from benchmarks.stampede.terms import POOL_CONNECTIONS, POOL_WAIT_SECONDS

Read: TypeAlias = Callable[[int], Awaitable[Value]]


class Cashews(AsyncStrategy):
    """A decorator of cashews around the origin."""

    needs: ClassVar[tuple[str, ...]] = ("cashews",)
    is_peer = True
    unseen: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def decorated(self, cache: Any, compute: Read) -> Read:
        """Return the origin behind the cache."""

    async def on_loop(self) -> AsyncCache:
        """Set the cache up."""
        from cashews import Cache

        cache = Cache()
        cache.setup(
            self.terms.place.cache_url,
            middlewares=(_telling,),
            max_connections=POOL_CONNECTIONS,
            wait_for_connection_timeout=POOL_WAIT_SECONDS,
            suppress=False,
        )
        await cache.init()
        origin = self.origin()

        async def stampede(number: int) -> Value:
            return await origin.acompute(number)

        return _Cashews(cache, origin, self.decorated(cache, stampede))


class _Cashews(AsyncCache):
    def __init__(self, cache: Any, origin: Origin, read: Read) -> None:
        self._cache, self._origin, self._read = cache, origin, read

    async def read(self, number: int) -> Value:
        return await self._read(number)

    async def close(self) -> None:
        await self._cache.close()
        await self._origin.aclose()


async def _telling(call: Callable[..., Awaitable[Any]], command: Any, backend: Any, *args: Any, **kwargs: Any) -> Any:
    """Tell of misses and of locks: what a command of the cache was, and what it gave."""
    reply = await call(*args, **kwargs)
    if command.value == "get" and reply is kwargs.get("default"):
        note(Mark.MISS)
    elif command.value == "set" and kwargs.get("exist") is False:
        note(Mark.EARLY if reply else Mark.EARLY | Mark.CONTENDED | Mark.DUCKED)
    elif command.value == "set_lock" and not reply:
        note(Mark.CONTENDED)
    return reply
