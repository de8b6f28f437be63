"""Strategy of this project: the reader serves what is there, a Celery worker recomputes."""

from __future__ import annotations

from typing import Any, Final

from api_client import AsyncCacheClient, CacheClient, Entry, EntryState, ReaderEvents, RefreshState
from benchmarks.stampede.recorder import Mark, record
from benchmarks.stampede.strategies.strategy import AsyncCache, Strategy, SyncCache, Value

QUERY: Final = "stampede"


class Ours(Strategy):
    """`CacheClient` and `AsyncCacheClient` with default settings, and a real Celery worker."""

    name = "ours"
    title = "ours"
    limits = "A miss costs more than a lock does: a message, a worker and a notification lie in between."

    def on_threads(self) -> SyncCache:
        return _OurSync(self)

    async def on_loop(self) -> AsyncCache:
        return _OurAsync(self)

    def params(self, number: int) -> dict[str, Any]:
        """Return the params under which a variant's number is cached."""
        return {"variant": self.variant, "number": number}


class _Refusals(ReaderEvents):
    """Counts claims that were refused, which happens on the publisher's thread, when the read has long been served."""

    def __init__(self) -> None:
        self.count = 0

    def refresh_deduplicated(self, query: str, *, state: str) -> None:
        self.count += 1


class _OurSync(SyncCache):
    def __init__(self, strategy: Ours) -> None:
        self._params = strategy.params
        self._refusals, self._recorded = _Refusals(), 0
        self._client = CacheClient(strategy.config.servers.settings(), events=self._refusals)

    def read(self, number: int) -> Value:
        entry = self._client.get_entry(QUERY, self._params(number))
        self._recorded = _record_entry(entry, self._refusals.count, self._recorded)
        value: Value = entry.value
        return value

    def close(self) -> None:
        self._client.close()


class _OurAsync(AsyncCache):
    def __init__(self, strategy: Ours) -> None:
        self._params = strategy.params
        self._refusals, self._recorded = _Refusals(), 0
        self._client = AsyncCacheClient(strategy.config.servers.settings(), events=self._refusals)

    async def read(self, number: int) -> Value:
        entry = await self._client.get_entry(QUERY, self._params(number))
        self._recorded = _record_entry(entry, self._refusals.count, self._recorded)
        value: Value = entry.value
        return value

    async def close(self) -> None:
        await self._client.close()


def _record_entry(entry: Entry[Any], refusals: int, recorded: int) -> int:
    """Record what the entry says, and a refused claim on the next read of the process; return how many are recorded."""
    if entry.state is EntryState.MISS:
        record(Mark.MISS)
    elif entry.refresh is not RefreshState.NONE:
        record(Mark.EARLY if entry.refresh is RefreshState.TRIGGERED else Mark.EARLY | Mark.DUCKED)
    if refusals > recorded:
        record(Mark.CONTENDED)
        return recorded + 1
    return recorded
