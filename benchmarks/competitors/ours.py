"""Readers of this project, default settings but a longer timeout: decision and decoding are part of a read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final

from api_client import AsyncCacheClient, CacheClient
from benchmarks.apparatus.entries import QUERY, Seeder, Value, frozen
from benchmarks.competitors.competitor import AsyncCompetitor, Dataset, SyncCompetitor

LOCAL: Final[Mapping[str, Any]] = MappingProxyType({"local_max_entries": 10_000})


def seed(dataset: Dataset) -> None:
    """Put fresh entries under all numbers."""
    with dataset.servers.plain() as client:
        Seeder(client, dataset.servers.namespace, dataset.value_of).put(dataset.numbers)


class OurSync(SyncCompetitor):
    """`CacheClient.get`, one client for all threads."""

    title = "CacheClient"
    changes: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def set_up(self) -> None:
        seed(self.dataset)
        self._client = CacheClient(self.dataset.servers.lenient_settings(**self.changes))

    def reader(self) -> Callable[[int], Value]:
        get = self._client.get
        return lambda number: get(QUERY, {"person_id": number})

    def close(self) -> None:
        self._client.close()


class OurLocalSync(OurSync):
    """The same with its in-process tier."""

    title = "CacheClient, in-process tier"
    is_local = True
    changes: ClassVar[Mapping[str, Any]] = LOCAL


class OurLocalSyncFrozen(OurLocalSync):
    """The same, read as what nobody can change, so that all callers may have the same value."""

    title = "CacheClient, in-process tier, type= frozen"

    def expected(self, number: int) -> Value:
        return frozen(super().expected(number))[1]

    def reader(self) -> Callable[[int], Value]:
        get, (type_, _) = self._client.get, frozen(self.dataset.value_of(0))
        return lambda number: get(QUERY, {"person_id": number}, type=type_)


class OurAsync(AsyncCompetitor):
    """`AsyncCacheClient.get`."""

    title = "AsyncCacheClient"
    changes: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    async def set_up(self) -> None:
        seed(self.dataset)
        self._client = AsyncCacheClient(self.dataset.servers.lenient_settings(**self.changes))

    def reader(self) -> Callable[[int], Awaitable[Value]]:
        get = self._client.get
        return lambda number: get(QUERY, {"person_id": number})

    async def close(self) -> None:
        await self._client.close()


class OurLocalAsync(OurAsync):
    """The same with its in-process tier."""

    title = "AsyncCacheClient, in-process tier"
    is_local = True
    changes: ClassVar[Mapping[str, Any]] = LOCAL


class OurLocalAsyncFrozen(OurLocalAsync):
    """The same, read as what nobody can change."""

    title = "AsyncCacheClient, in-process tier, type= frozen"

    def expected(self, number: int) -> Value:
        return frozen(super().expected(number))[1]

    def reader(self) -> Callable[[int], Awaitable[Value]]:
        get, (type_, _) = self._client.get, frozen(self.dataset.value_of(0))
        return lambda number: get(QUERY, {"person_id": number}, type=type_)
