"""What the herds of `python -m benchmarks hits` read with: threads and tasks of ours, tasks of cashews."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Final

import redis.asyncio

from api_client import AsyncCacheClient, CacheClient
from benchmarks.herd.queries import LOAD_SECONDS, QUERY, marks_of
from benchmarks.herd.readers import Maker, TaskReaders, ThreadReaders
from benchmarks.payloads import PayloadKind, Value, ValueOf, value_of
from benchmarks.places import Place
from benchmarks.seeding import TTL_SECONDS, params_of

EARLY_SECONDS: Final = 1.0
NOTHING: Final = 0
"""The number under which nothing is read."""
NOTHING_SECONDS: Final = 50e-6


class Kind(StrEnum):
    """Who reads."""

    THREADS = "threads"
    ASYNCIO = "asyncio"
    CASHEWS = "cashews"


class HitsMaker(Maker):
    """Makes readers of a kind."""

    def __init__(self, place: Place, kind: Kind, payload: PayloadKind) -> None:
        self._place, self._kind, self._payload = place, kind, payload
        self.on_threads: bool = kind is Kind.THREADS

    def threads(self) -> ThreadReaders:
        """Make a client."""
        return _OurThreads(self._place, value_of(self._payload))

    async def tasks(self) -> TaskReaders:
        """Make a client, or cashews' cache."""
        if self._kind is Kind.CASHEWS:
            return _CashewsTasks(self._place, value_of(self._payload))
        return _OurTasks(self._place, value_of(self._payload))


class _Readers:
    def __init__(self, value_of: ValueOf) -> None:
        self._value_of = value_of

    def is_right(self, number: int, value: Value) -> bool:
        return bool(value == self._value_of(number)) if number != NOTHING else value is None


class _OurThreads(_Readers):
    """`CacheClient`, with default settings."""

    def __init__(self, place: Place, value_of: ValueOf) -> None:
        super().__init__(value_of)
        self._client = CacheClient(place.settings())

    def read(self, number: int) -> Value:
        return self._client.get(QUERY, params_of(number)) if number != NOTHING else nothing()

    def close(self) -> None:
        self._client.close()


def nothing() -> None:
    """Be busy for as long as a read's own Python takes, and do nothing else: what the threads alone cost."""
    ends = time.perf_counter() + NOTHING_SECONDS
    while time.perf_counter() < ends:
        pass


class _OurTasks(_Readers):
    """`AsyncCacheClient`, with default settings."""

    def __init__(self, place: Place, value_of: ValueOf) -> None:
        super().__init__(value_of)
        self._client = AsyncCacheClient(place.settings())

    async def read(self, number: int) -> Value:
        return await self._client.get(QUERY, params_of(number))

    async def close(self) -> None:
        await self._client.close()


class _CashewsTasks(_Readers):
    """``@cache.early`` of cashews: who finds the entry past its early expiry computes it in its own process."""

    def __init__(self, place: Place, value_of: ValueOf) -> None:
        super().__init__(value_of)
        from cashews import Cache

        self._control = redis.asyncio.Redis.from_url(place.control_url)
        self._cache = Cache()
        self._cache.setup(place.cache_url)

        async def herd(person_id: int) -> Value:
            await self._control.rpush(marks_of(person_id), "cashews")
            await asyncio.sleep(LOAD_SECONDS)
            return value_of(person_id)

        remembered = self._cache.early(
            ttl=TTL_SECONDS,
            early_ttl=EARLY_SECONDS,
            key="herd:{person_id}",
            prefix=f"{place.namespace}:cashews-herd",
        )
        self._read: Callable[[int], Awaitable[Value]] = remembered(herd)

    async def read(self, number: int) -> Value:
        return await self._read(number)

    async def close(self) -> None:
        await self._cache.close()
        await self._control.aclose()
