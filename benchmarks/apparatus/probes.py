"""Our two readers behind one face, for timing single reads: the clock stands right around the call."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import ClassVar, Final

from api_client import AsyncCacheClient, CacheClient, ReaderEvents, ReaderSettings, RefreshReason
from benchmarks.apparatus.entries import QUERY, params_of

_SETTLE_SECONDS: Final = 5.0


class Published(ReaderEvents):
    """Counts what was published: a run in which nothing was is no measurement of triggers."""

    def __init__(self) -> None:
        self.count: int = 0

    def refresh_triggered(self, query: str, *, reason: RefreshReason) -> None:
        """Count one, on the publisher's thread."""
        self.count += 1


class Probe(ABC):
    """A reader of its own, with what it has published."""

    title: ClassVar[str]

    def __init__(self, settings: ReaderSettings) -> None:
        self.published: Published = Published()
        self._open(settings)

    @abstractmethod
    def _open(self, settings: ReaderSettings) -> None:
        """Make the client."""

    @abstractmethod
    async def timed(self, number: int) -> float:
        """Read one number, and return how long that took, in seconds."""

    @abstractmethod
    async def flush_triggers(self) -> None:
        """Wait until all triggers have been published."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect."""


class SyncProbe(Probe):
    """`CacheClient`."""

    title = "sync"

    def _open(self, settings: ReaderSettings) -> None:
        self._client = CacheClient(settings, events=self.published)

    async def timed(self, number: int) -> float:
        """Read on the calling thread."""
        get, params = self._client.get, params_of(number)
        began = time.perf_counter()
        get(QUERY, params)
        return time.perf_counter() - began

    async def flush_triggers(self) -> None:
        """Flush."""
        self._client.flush(_SETTLE_SECONDS)

    async def close(self) -> None:
        """Close."""
        self._client.close()


class AsyncProbe(Probe):
    """`AsyncCacheClient`."""

    title = "async"

    def _open(self, settings: ReaderSettings) -> None:
        self._client = AsyncCacheClient(settings, events=self.published)

    async def timed(self, number: int) -> float:
        """Read in the calling task."""
        get, params = self._client.get, params_of(number)
        began = time.perf_counter()
        await get(QUERY, params)
        return time.perf_counter() - began

    async def flush_triggers(self) -> None:
        """Flush."""
        await self._client.flush(_SETTLE_SECONDS)

    async def close(self) -> None:
        """Close."""
        await self._client.close()
