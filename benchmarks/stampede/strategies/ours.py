"""Strategy of this project: the reader serves what is there, a Celery worker recomputes."""

from __future__ import annotations

from typing import Any, Final

from api_client import AsyncCacheClient, CacheClient, Entry, EntryState, ReaderEvents, RefreshState
from benchmarks.apparatus.loops import await_if_needed, run_on_thread
from benchmarks.stampede.recorder import Mark, record
from benchmarks.stampede.strategies.strategy import Cache, Strategy, Value

QUERY: Final = "stampede"


class Ours(Strategy):
    """`CacheClient` and `AsyncCacheClient` with default settings, and a real Celery worker."""

    name = "ours"
    title = "ours"
    limits = "A miss costs more than a lock does: a message, a worker and a notification lie in between."

    async def opened(self, *, on_loop: bool) -> Cache:
        return _OurCache(self, on_loop=on_loop)

    def params(self, number: int) -> dict[str, Any]:
        """Return the params under which a variant's number is cached."""
        return {"variant": self.variant, "number": number}


class _Refusals(ReaderEvents):
    """Counts claims that were refused, which happens on the publisher's thread, when the read has long been served."""

    def __init__(self) -> None:
        self.count = 0

    def refresh_deduplicated(self, query: str, *, state: str) -> None:
        self.count += 1


class _OurCache:
    def __init__(self, strategy: Ours, *, on_loop: bool) -> None:
        self._params, self._on_loop = strategy.params, on_loop
        self._refusals, self._recorded = _Refusals(), 0
        of = AsyncCacheClient if on_loop else CacheClient
        self._client = of(strategy.config.servers.settings(), events=self._refusals)
        self.close = self._client.close

    def read(self, number: int) -> Any:
        coroutine = self._read(number)
        return coroutine if self._on_loop else run_on_thread(coroutine)

    async def _read(self, number: int) -> Value:
        """Read, and record what the entry says; a refused claim is recorded on the next read of the process."""
        entry: Entry[Value] = await await_if_needed(self._client.get_entry(QUERY, self._params(number)))
        if entry.state is EntryState.MISS:
            record(Mark.MISS)
        elif entry.refresh is not RefreshState.NONE:
            record(Mark.EARLY if entry.refresh is RefreshState.TRIGGERED else Mark.EARLY | Mark.DUCKED)
        if self._refusals.count > self._recorded:
            record(Mark.CONTENDED)
            self._recorded += 1
        return entry.value
