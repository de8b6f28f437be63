"""The application that every host runs: it uses the cache, closes it, and reports what each of both left behind.

A report is a dict: the process; the triggers that failed; the `EntryState` of a hit, of a read after an invalidation
and of one after the refresh; and by moment what had changed in the process since the moment before the library was
imported (``import``), or used here (``open``, ``closed``).
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Generator
from typing import Any, Final, TypeAlias

from tests.acceptance.hosts import probe

BEFORE: Final = probe.take()

from api_client import AsyncCacheClient, CacheClient, EntryState, ReaderEvents  # noqa: E402

IMPORTED: Final = probe.changes(BEFORE, probe.take())

from api_client.threads import OwnThread  # noqa: E402
from tests.support.patience import publish_patiently  # noqa: E402
from tests.support.waiting import MAX_WAIT_SECONDS  # noqa: E402

publish_patiently()
join = OwnThread.join
# `close` waits a second at most: what ends later is not left over.
OwnThread.join = lambda thread, _: join(thread, MAX_WAIT_SECONDS)  # type: ignore[method-assign]
WATCHDOG: Final = "cache-overdue"
"""The one thread that `close` does not wait for."""
QUERY: Final = "long_lived"

Report: TypeAlias = dict[str, Any]
Steps: TypeAlias = Generator[Callable[[], Any], Any, list[EntryState]]
"""Yields calls of either client, and is sent what they return."""


def _steps(client: Any, key: str, sleep: Callable[[float], Any]) -> Steps:
    params = {"key": key}
    yield lambda: client.get(QUERY, params)
    hit = yield lambda: client.get_entry(QUERY, params)
    yield lambda: client.invalidate(QUERY, params)
    stale = yield lambda: client.get_entry(QUERY, params)
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    refreshed = stale
    while refreshed.value == stale.value and time.monotonic() < deadline:
        yield lambda: sleep(0.02)
        refreshed = yield lambda: client.get_entry(QUERY, params)
    return [hit.state, stale.state, refreshed.state]


class Failures(ReaderEvents):
    """Records each trigger that was not published."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def trigger_failed(self, query: str, *, why: str) -> None:
        """Record it."""
        self.seen.append(why)

    def refresh_dropped(self, query: str, *, why: str) -> None:
        """Record it."""
        self.seen.append(why)


class Application:
    """The actions of a host; one for each process, or one from before a fork."""

    def __init__(self) -> None:
        self._uses: dict[int, int] = {}
        self._first: dict[int, probe.Snapshot] = {}
        self._client: Any = None
        self._failures = Failures()
        self._closed_at: float | None = None
        self._lock = threading.Lock()

    def use(self) -> Report:
        """Hit, invalidate, read a stale value, and see it refreshed."""
        steps = self._begin(CacheClient.from_env, time.sleep)
        try:
            call = next(steps)
            while True:
                call = steps.send(call())
        except StopIteration as end:
            return self._report("open", end.value)

    async def ause(self) -> Report:
        """Do the same on an event loop."""
        steps = self._begin(AsyncCacheClient.from_env, asyncio.sleep)
        try:
            call = next(steps)
            while True:
                call = steps.send(await call())
        except StopIteration as end:
            return self._report("open", end.value)

    def flush(self) -> None:
        """Publish what was triggered; no thread of the client is busy after that."""
        self._client.flush(MAX_WAIT_SECONDS)

    def close(self) -> Report:
        """Close the client."""
        self._client.close()
        while self._is_ending():
            time.sleep(0.05)
        return self._report("closed")

    def watch_anew(self) -> None:
        """Compare with the moment before the next use."""
        self._first.clear()

    async def aclose(self) -> Report:
        """Close the async client."""
        await self._client.close()
        while self._is_ending():  # noqa: ASYNC110 - threads, and no event
            await asyncio.sleep(0.05)
        return self._report("closed")

    def _is_ending(self) -> bool:
        """Return whether the process' watchdog has still to end; any other thread that is there now is left over."""
        self._closed_at = self._closed_at or time.monotonic()
        found = probe.changes(self._first[os.getpid()], probe.take()).get("threads", ())
        is_late = time.monotonic() > self._closed_at + MAX_WAIT_SECONDS
        return not is_late and any(change.startswith(f"+ {WATCHDOG}") for change in found)

    def _begin(self, make: Callable[..., Any], sleep: Callable[[float], Any]) -> Steps:
        pid = os.getpid()
        with self._lock:
            if pid not in self._first:
                self._first[pid] = probe.take()
            self._client = self._client or make(events=self._failures)
            self._uses[pid] = self._uses.get(pid, 0) + 1
            return _steps(self._client, f"{pid} {self._uses[pid]}", sleep)

    def _report(self, moment: str, states: list[EntryState] | None = None) -> Report:
        left = probe.changes(self._first[os.getpid()], probe.take())
        report: Report = {"pid": os.getpid(), moment: left, "import": IMPORTED, "failures": self._failures.seen}
        return report | {"states": states} if states else report
