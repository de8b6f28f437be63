"""Three strategies of cashews, on its Redis cache with a recording middleware."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from benchmarks.stampede.config import POOL_CONNECTIONS, POOL_WAIT_SECONDS
from benchmarks.stampede.recorder import Mark, record
from benchmarks.stampede.strategies.strategy import ON_LOOPS, Cache, Strategy, Value


class Cashews(Strategy):
    """A decorator of cashews around the origin."""

    kinds = ON_LOOPS
    is_peer = True

    @abstractmethod
    def decorator(self, cache: Any) -> Any:
        """Return the decorator that puts the origin behind the cache."""

    async def opened(self, *, on_loop: bool) -> Cache:
        import cashews

        cache = cashews.Cache()
        cache.setup(
            self.config.servers.cache_url,
            middlewares=(_recording,),
            max_connections=POOL_CONNECTIONS,
            wait_for_connection_timeout=POOL_WAIT_SECONDS,
            suppress=False,
        )
        await cache.init()
        origin = self.origin(on_loop=True)

        async def stampede(number: int) -> Value:
            value: Value = await origin.compute(number)
            return value

        async def close() -> None:
            await cache.close()
            await origin.close()

        return Cache(self.decorator(cache)(stampede), close)


async def _recording(call: Callable[..., Awaitable[Any]], command: Any, backend: Any, *args: Any, **kwargs: Any) -> Any:
    """Record misses and locks from the cache's commands and their results."""
    reply = await call(*args, **kwargs)
    if command.value == "get" and reply is kwargs.get("default"):
        record(Mark.MISS)
    elif command.value == "set" and kwargs.get("exist") is False:
        record(Mark.EARLY if reply else Mark.EARLY | Mark.CONTENDED | Mark.DUCKED)
    elif command.value == "set_lock" and not reply:
        record(Mark.CONTENDED)
    return reply


class CashewsEarly(Cashews):
    """Past its early expiry one reader's process recomputes in the background, while the others serve the old value."""

    name = "cashews-early"
    title = "cashews early"
    limits = (
        "A miss is not protected beyond its own process. The lock lasts as long as the early expiry, which can't be "
        "set, and is deleted by whoever ends, so that a crash stops recomputing for that long."
    )

    def decorator(self, cache: Any) -> Any:
        config = self.config
        return cache.early(
            ttl=config.hard_seconds, early_ttl=config.expires_seconds, key="{number}", prefix=self.prefix
        )  # fmt: skip


class CashewsLock(Cashews):
    """One reader at a time looks, and recomputes if there is no value."""

    name = "cashews-lock"
    title = "cashews lock"
    busy_waits = True
    limits = (
        "The lock is around every read, hits too, and is requested again and again without a pause. It lasts as long "
        "as the value does, which is how long a crash stops all."
    )

    def decorator(self, cache: Any) -> Any:
        return cache(ttl=self.config.expires_seconds, key=f"{self.prefix}:{{number}}", lock=True)


class CashewsSoft(Cashews):
    """Past its soft expiry a value is recomputed, and still served if that fails."""

    name = "cashews-soft"
    title = "cashews soft"
    limits = "Stale values are for failures: past the soft expiry each process recomputes, and its readers wait."
    unobservable: ClassVar[tuple[str, ...]] = ("contention", "ducked_out")

    def decorator(self, cache: Any) -> Any:
        config = self.config
        return cache.soft(ttl=config.hard_seconds, soft_ttl=config.expires_seconds, key="{number}", prefix=self.prefix)
