"""The reader's link to Redis: bounded in time, behind a breaker, with Redis' clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar, cast

from redis.exceptions import ConnectionError, ReadOnlyError, ResponseError, TimeoutError

from api_client.breaker import Breaker
from api_client.clock import RedisClock, monotonic_seconds
from api_client.errors import CacheUnavailable
from api_client.keys import CacheKey
from api_client.lease import Call
from api_client.lease_store import LeaseStore
from api_client.redis_edge import connect, translated

T = TypeVar("T")


class CacheLink:
    """Reads entries and runs lease steps; every failure is a CacheUnavailable, at once while the breaker is open."""

    def __init__(self, url: str, timeout_seconds: float) -> None:
        self.redis = connect(url, timeout_seconds=timeout_seconds)
        self.store = LeaseStore(self.redis)
        self._clock = RedisClock()
        self._breaker = Breaker()

    def read(self, key: CacheKey) -> bytes | None:
        """Return the entry's bytes (``b""`` where the key is no string), or None where there is none."""
        with self._guarded(key.query):
            try:
                return cast("bytes | None", self.redis.get(key.entry))
            except ResponseError as error:
                if str(error).startswith("WRONGTYPE"):
                    return b""
                raise

    def run(self, call: Call[T], query: str) -> T:
        """Run one step of the lease record."""
        with self._guarded(query):
            return self.store.run(call)

    def now_us(self) -> int:
        """Return Redis' time; asks Redis only when it never has been asked."""
        if not self._clock.is_known:
            self.learn_clock()
        return self._clock.now_us()

    def clock_is_due(self) -> bool:
        """Tell whether the clock should be learnt again; the next one who asks is told no for a second."""
        return self._clock.is_due_once()

    def learn_clock(self) -> None:
        """Ask Redis for its time."""
        with self._guarded(None):
            asked_at = monotonic_seconds()
            whole_seconds, microseconds = self.redis.time()
            self._clock.learn(whole_seconds * 1_000_000 + microseconds, asked_at=asked_at)

    def close(self) -> None:
        """Close the connections."""
        self.redis.close()

    @contextmanager
    def _guarded(self, query: str | None) -> Iterator[None]:
        if not self._breaker.allows():
            raise CacheUnavailable(
                "the cache's Redis failed repeatedly and is being left alone for a moment", query=query
            )
        try:
            with translated(query):
                yield
        except CacheUnavailable as error:
            self._judge(error.__cause__)
            raise
        self._breaker.succeeded()

    def _judge(self, cause: BaseException | None) -> None:
        # An answer, even a refusal (out of memory, say), is no reason to stop asking: reads may go on well.
        if isinstance(cause, ConnectionError | TimeoutError | OSError):
            self._breaker.failed()
            self._clock.forget()
        elif isinstance(cause, ReadOnlyError):
            # A demoted master: redis-py keeps its connections, so they are dropped here to find the new one.
            self.redis.connection_pool.disconnect()
            self._clock.forget()
