"""dogpile.cache, django-cacheback and aiocache on Redis, as in their documentation."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

import redis
from redis.asyncio import BlockingConnectionPool
from redis.exceptions import LockError

from benchmarks.competitors.connections import aiocache_server
from benchmarks.stampede.config import POOL_CONNECTIONS, POOL_WAIT_SECONDS
from benchmarks.stampede.recorder import Mark, record
from benchmarks.stampede.strategies.strategy import ON_LOOPS, ON_THREADS, Cache, Strategy, Value


class Dogpile(Strategy):
    """``get_or_create``: a thread of the reader's process makes the new value, while the others get the old one."""

    name = "dogpile"
    title = "dogpile.cache"
    kinds = ON_THREADS
    is_peer = True
    reader_sets_expiry = True
    limits = (
        "Without the background runner that is measured here, who regenerates waits. The runner's thread is one of a "
        "reader's process. On a miss all wait, looking every 100 ms. Its lock has no end unless lock_timeout is given."
    )

    async def opened(self, *, on_loop: bool) -> Cache:
        from dogpile.cache import make_region

        config, origin, prefix = self.config, self.origin(on_loop=False), f"{self.prefix}:"
        pool = redis.BlockingConnectionPool.from_url(
            config.servers.cache_url, max_connections=POOL_CONNECTIONS, timeout=POOL_WAIT_SECONDS
        )
        region: Any = make_region(
            key_mangler=lambda key: prefix + key, async_creation_runner=_in_a_thread
        ).configure(
            "dogpile.cache.redis",
            expiration_time=config.expires_seconds,
            arguments={
                "connection_pool": pool,
                "redis_expiration_time": int(config.hard_seconds),
                "distributed_lock": True,
                "thread_local_lock": False,
                "lock_timeout": config.lease_seconds,
            },
            wrap=[_recording_proxy()],
        )  # fmt: skip

        def close() -> None:
            pool.disconnect()
            origin.close()

        return Cache(lambda number: region.get_or_create(str(number), lambda: origin.compute(number)), close)


def _in_a_thread(cache: Any, key: str, creator: Callable[[], Any], mutex: Any) -> None:
    def run() -> None:
        try:
            cache.set(key, creator())
        finally:
            with suppress(LockError):  # its time was up, and another reader holds it; nobody reads a thread's traceback
                mutex.release()

    threading.Thread(target=run).start()


def _recording_proxy() -> type:
    """Return a proxy, dogpile's extension point, that records misses and the lock."""
    from dogpile.cache.api import NO_VALUE
    from dogpile.cache.proxy import ProxyBackend

    class RecordingProxy(ProxyBackend):  # type: ignore[misc, unused-ignore] # no types where it is not installed
        def get_serialized(self, key: str) -> Any:
            value = self.proxied.get_serialized(key)
            if value is NO_VALUE:
                record(Mark.MISS)
            return value

        def get_mutex(self, key: str) -> Any:
            return _RecordingMutex(self.proxied.get_mutex(key))

    return RecordingProxy


class _RecordingMutex:
    """A lock that records whether another reader held it."""

    def __init__(self, mutex: Any) -> None:
        self._mutex = mutex
        self.release, self.locked = mutex.release, mutex.locked

    def acquire(self, wait: bool = True) -> bool:  # noqa: FBT001, FBT002 - as dogpile calls it
        if self._mutex.acquire(False):  # noqa: FBT003 - as dogpile has it
            if not wait:
                record(Mark.EARLY)
            return True
        record(Mark.CONTENDED if wait else Mark.CONTENDED | Mark.EARLY | Mark.DUCKED)
        return bool(self._mutex.acquire(True)) if wait else False  # noqa: FBT003


class Aiocache(Strategy):
    """A reader that finds nothing requests a lock, for which the others of its process wait at most for its lease."""

    name = "aiocache"
    title = "aiocache"
    kinds = ON_LOOPS
    is_peer = True
    unobservable: ClassVar[tuple[str, ...]] = ("contention", "ducked_out")
    limits = (
        "Nothing is refreshed early or served stale. Its lock is waited for within a process alone: who meets another "
        "process's lock goes on and recomputes."
    )

    async def opened(self, *, on_loop: bool) -> Cache:
        from aiocache import RedisCache, cached_stampede

        origin = self.origin(on_loop=True)
        decorator: Any = cached_stampede(
            lease=self.config.lease_seconds,
            ttl=self.config.expires_seconds,
            key_builder=lambda function, number: str(number),
            cache=RedisCache,
            plugins=[_recording_plugin()],
            **aiocache_server(self.config.servers.cache_url),
            namespace=self.prefix,
            pool_max_size=POOL_CONNECTIONS,
            connection_pool_class=BlockingConnectionPool,
            connection_pool_kwargs={"timeout": POOL_WAIT_SECONDS},
            timeout=POOL_WAIT_SECONDS,
        )

        async def stampede(number: int) -> Value:
            value: Value = await origin.compute(number)
            return value

        read = decorator(stampede)

        async def close() -> None:
            await read.cache.close()
            await origin.close()

        return Cache(read, close)


def _recording_plugin() -> Any:
    """Return a plugin, aiocache's extension point, that records misses."""
    from aiocache.plugins import BasePlugin

    class RecordingPlugin(BasePlugin):  # type: ignore[misc, unused-ignore] # no type information is shipped
        async def post_get(self, *args: Any, ret: Any = None, **kwargs: Any) -> None:
            if ret is None:
                record(Mark.MISS)

    return RecordingPlugin()


class Cacheback(Strategy):
    """A reader that finds a stale value writes it back as fresh for a while, and sends a task to recompute it."""

    name = "cacheback"
    title = "django-cacheback"
    kinds = ON_THREADS
    is_peer = True
    unobservable: ClassVar[tuple[str, ...]] = ("contention", "ducked_out")
    limits = (
        "Looking and writing back are two steps, so that readers of one moment send a task each. A miss is computed "
        "by each reader that meets it."
    )

    async def opened(self, *, on_loop: bool) -> Cache:
        from benchmarks.stampede.strategies.cacheback_job import configured_job

        job = configured_job(self.config, self.variant)
        return Cache(lambda number: job().get(number), job().cache.close)
