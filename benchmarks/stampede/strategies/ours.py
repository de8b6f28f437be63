"""Strategy of this project: the reader serves the present value, and a Celery worker recomputes."""

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
        refusals = _Refusals()
        of = AsyncCacheClient if on_loop else CacheClient
        client = of(self.config.servers.settings(), events=refusals)

        def read(number: int) -> Any:
            coroutine = self._read(client, number, refusals)
            return coroutine if on_loop else run_on_thread(coroutine)

        return Cache(read, client.close)

    def params(self, number: int) -> dict[str, Any]:
        return {"variant": self.variant, "number": number}

    async def _read(self, client: CacheClient | AsyncCacheClient, number: int, refusals: _Refusals) -> Value:
        """Read, and record the entry's state; a refused claim is recorded on the next read of the process."""
        entry: Entry[Value] = await await_if_needed(client.get_entry(QUERY, self.params(number)))
        if entry.state is EntryState.MISS:
            record(Mark.MISS)
        elif entry.refresh is not RefreshState.NONE:
            record(Mark.EARLY if entry.refresh is RefreshState.TRIGGERED else Mark.EARLY | Mark.DUCKED)
        if refusals.count > refusals.recorded:
            record(Mark.CONTENDED)
            refusals.recorded += 1
        return entry.value


class _Refusals(ReaderEvents):
    """Counts refused claims, which occur on the publisher's thread, long after the read was served."""

    def __init__(self) -> None:
        self.count = self.recorded = 0

    def refresh_deduplicated(self, query: str, *, state: str) -> None:
        self.count += 1
