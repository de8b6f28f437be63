"""dogpile.cache on Redis, its distributed lock and its background runner, as its documentation shows them."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

import redis
from redis.exceptions import LockError

from benchmarks.stampede.notes import Mark, note
from benchmarks.stampede.strategies.strategy import SyncCache, SyncStrategy, Value
from benchmarks.stampede.terms import POOL_CONNECTIONS, POOL_WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable


class Dogpile(SyncStrategy):
    """``get_or_create``; a thread of the reader's process makes the new value, the others get the old one."""

    name = "dogpile"
    title = "dogpile.cache"
    needs: ClassVar[tuple[str, ...]] = ("dogpile",)
    is_peer = True
    reader_tells_expiry = True
    cannot = (
        "Without the background runner that is measured here, who regenerates waits. The runner's thread is one of a "
        "reader's process. On a miss all wait, looking every 100 ms. Its lock has no end unless lock_timeout is given."
    )

    def on_threads(self) -> SyncCache:
        """Make a region."""
        return _Dogpile(self)


class _Dogpile(SyncCache):
    def __init__(self, strategy: Dogpile) -> None:
        from dogpile.cache import make_region

        terms, self._origin = strategy.terms, strategy.origin()
        self._pool = redis.BlockingConnectionPool.from_url(
            terms.place.cache_url, max_connections=POOL_CONNECTIONS, timeout=POOL_WAIT_SECONDS
        )
        prefix = f"{strategy.prefix}:"
        self._region = make_region(
            key_mangler=lambda key: prefix + key, async_creation_runner=_in_a_thread
        ).configure(
            "dogpile.cache.redis",
            expiration_time=terms.expires_seconds,
            arguments={
                "connection_pool": self._pool,
                "redis_expiration_time": int(terms.hard_seconds),
                "distributed_lock": True,
                "thread_local_lock": False,
                "lock_timeout": terms.lease_seconds,
            },
            wrap=[_telling_proxy()],
        )  # fmt: skip

    def read(self, number: int) -> Value:
        value: Value = self._region.get_or_create(str(number), lambda: self._origin.compute(number))
        return value

    def close(self) -> None:
        self._pool.disconnect()
        self._origin.close()


def _in_a_thread(cache: Any, key: str, creator: Callable[[], Any], mutex: Any) -> None:
    def run() -> None:
        try:
            cache.set(key, creator())
        finally:
            with suppress(LockError):  # its time was up, and another has it: nobody reads a thread's traceback
                mutex.release()

    threading.Thread(target=run).start()


def _telling_proxy() -> type:
    """Return a proxy, dogpile's own way of hooking in, that tells of misses and of the lock."""
    from dogpile.cache.api import NO_VALUE
    from dogpile.cache.proxy import ProxyBackend

    class TellingProxy(ProxyBackend):  # type: ignore[misc, unused-ignore] # no types where it is not installed
        def get_serialized(self, key: str) -> Any:
            value = self.proxied.get_serialized(key)
            if value is NO_VALUE:
                note(Mark.MISS)
            return value

        def get_mutex(self, key: str) -> Any:
            return _TellingMutex(self.proxied.get_mutex(key))

    return TellingProxy


class _TellingMutex:
    """The lock, which tells whether another one had it."""

    def __init__(self, mutex: Any) -> None:
        self._mutex = mutex
        self.release, self.locked = mutex.release, mutex.locked

    def acquire(self, wait: bool = True) -> bool:  # noqa: FBT001, FBT002 - as dogpile calls it
        if self._mutex.acquire(False):  # noqa: FBT003 - as dogpile has it
            if not wait:
                note(Mark.EARLY)
            return True
        note(Mark.CONTENDED if wait else Mark.CONTENDED | Mark.EARLY | Mark.DUCKED)
        return bool(self._mutex.acquire(True)) if wait else False  # noqa: FBT003
