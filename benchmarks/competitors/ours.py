"""Readers of this project, default settings but a longer timeout: decision and decoding are part of a read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final
from uuid import UUID

import msgspec

from api_client import AsyncCacheClient, CacheClient
from benchmarks.apparatus.entries import FROZEN, QUERY, Seeder, Value
from benchmarks.competitors.competitor import Competitor, Dataset

LOCAL: Final[Mapping[str, Any]] = MappingProxyType({"local_max_entries": 10_000})


def seed(dataset: Dataset) -> None:
    """Put fresh entries under all numbers."""
    with dataset.servers.plain() as client:
        Seeder(client, dataset.servers.namespace).put(dataset.numbers)


class OurSync(Competitor):
    """`CacheClient.get`, one client for all threads."""

    title = "CacheClient"
    client: ClassVar[type[CacheClient | AsyncCacheClient]] = CacheClient
    changes: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def set_up(self) -> None:
        seed(self.dataset)
        self._client = self.client(self.dataset.servers.lenient_settings(**self.changes))

    def reader(self) -> Callable[[int], Any]:
        get = self._client.get
        return lambda number: get(QUERY, {"person_id": number})

    def close(self) -> Any:
        return self._client.close()


class OurAsync(OurSync):
    """`AsyncCacheClient.get`."""

    title = "AsyncCacheClient"
    client = AsyncCacheClient
    is_async = True


class OurAsyncByUuid(OurAsync):
    """The same, of keys whose param is a UUID."""

    title = "AsyncCacheClient, by UUID"

    def set_up(self) -> None:
        self._ids = {number: UUID(int=number) for number in self.dataset.numbers}
        with self.dataset.servers.plain() as client:
            Seeder(client, self.dataset.servers.namespace, params=self._params).put(self.dataset.numbers)
        self._client = self.client(self.dataset.servers.lenient_settings(**self.changes))

    def reader(self) -> Callable[[int], Any]:
        get = self._client.get
        return lambda number: get(QUERY, self._params(number))

    def _params(self, number: int) -> dict[str, Any]:
        return {"id": self._ids[number]}


class OurLocalSync(OurSync):
    """The same with its in-process tier."""

    title = "CacheClient, in-process tier"
    is_local = True
    changes = LOCAL


class OurLocalAsync(OurAsync):
    """The same with its in-process tier."""

    title = "AsyncCacheClient, in-process tier"
    is_local = True
    changes = LOCAL


class _Frozen(OurSync):
    """Read as what nobody can change, so that all callers may have the same value."""

    def expected(self, number: int) -> Value:
        return msgspec.convert(super().expected(number), FROZEN)

    def reader(self) -> Callable[[int], Any]:
        get = self._client.get
        return lambda number: get(QUERY, {"person_id": number}, type=FROZEN)


class OurLocalSyncFrozen(_Frozen, OurLocalSync):
    """The same, read as a frozen type."""

    title = "CacheClient, in-process tier, type= frozen"


class OurLocalAsyncFrozen(_Frozen, OurLocalAsync):
    """The same, read as a frozen type."""

    title = "AsyncCacheClient, in-process tier, type= frozen"
