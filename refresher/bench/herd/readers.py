"""One reader of a herd: a read, timed by itself. Three kinds: threads and tasks of ours, tasks of cashews."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Final, NamedTuple

import redis.asyncio

from api_client import AsyncCacheClient, CacheClient
from refresher.bench.herd.queries import LOAD_SECONDS, QUERY, marks_of
from refresher.bench.payloads import Value, ValueOf
from refresher.bench.places import Place
from refresher.bench.seeding import TTL_SECONDS, params_of

EARLY_SECONDS: Final = 1.0
NOTHING: Final = 0
"""The number under which nothing is read."""
NOTHING_SECONDS: Final = 50e-6
WRONG: Final = "wrong value"


class Kind(StrEnum):
    """Who reads."""

    THREADS = "threads"
    ASYNCIO = "asyncio"
    CASHEWS = "cashews"


class Read(NamedTuple):
    """One read: when it began after the common start, how long it took (s), and what went wrong, or nothing."""

    began: float
    took: float
    error: str


def read_on_thread(read: Callable[[int], Value], number: int, expected: Value, at: float) -> Read:
    """Read at ``at`` (monotonic seconds), whatever comes of it."""
    time.sleep(max(0.0, at - time.monotonic()))
    began, error = time.monotonic(), ""
    try:
        value = read(number)
        took = time.monotonic() - began
        error = "" if value == expected else WRONG
    except Exception as problem:  # noqa: BLE001 - errors are what is counted here
        took, error = time.monotonic() - began, type(problem).__name__
    return Read(began - at, took, error)


async def read_as_task(read: Callable[[int], Awaitable[Value]], number: int, expected: Value, at: float) -> Read:
    """Read at ``at``, as `read_on_thread`."""
    await asyncio.sleep(max(0.0, at - time.monotonic()))
    began, error = time.monotonic(), ""
    try:
        value = await read(number)
        took = time.monotonic() - began
        error = "" if value == expected else WRONG
    except Exception as problem:  # noqa: BLE001 - errors are what is counted here
        took, error = time.monotonic() - began, type(problem).__name__
    return Read(began - at, took, error)


def our_threads(client: CacheClient) -> Callable[[int], Value]:
    """Return what reads on a thread."""
    return lambda number: client.get(QUERY, params_of(number))


def nothing(number: int) -> Value:
    """Be busy for as long as a read's own Python takes, and do nothing else: what the threads alone cost."""
    ends = time.perf_counter() + NOTHING_SECONDS
    while time.perf_counter() < ends:
        pass
    return None


class OurTasks:
    """`AsyncCacheClient`, with default settings."""

    def __init__(self, place: Place, value_of: ValueOf) -> None:
        self._client = AsyncCacheClient(place.settings())

    def read(self, number: int) -> Awaitable[Value]:
        """Read a number."""
        return self._client.get(QUERY, params_of(number))

    async def close(self) -> None:
        """Disconnect."""
        await self._client.close()


class CashewsTasks:
    """``@cache.early`` of cashews: who finds the entry past its early expiry computes it in its own process."""

    def __init__(self, place: Place, value_of: ValueOf) -> None:
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
        self.read: Callable[[int], Awaitable[Value]] = remembered(herd)

    async def close(self) -> None:
        """Disconnect."""
        await self._cache.close()
        await self._control.aclose()
