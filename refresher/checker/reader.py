"""Readers under observation, and the log of what each read."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from api_client import AsyncCacheClient, CacheClient, CacheError, Entry, EntryState, ReaderSettings
from refresher.checker.oracle import Checker, Observation
from refresher.checker.writer import WatchedQuery


class ObservationLog:
    """Values that one reader got, each once, and the violations that it found itself. Not thread-safe.

    Attributes:
        states: count of reads by state.
        failures: count of errors by type.
        broken: violations, as text.
    """

    def __init__(self, query: str) -> None:
        self.states: Counter[EntryState] = Counter()
        self.failures: Counter[str] = Counter()
        self.broken: list[str] = []
        self._query = query
        self._seen: dict[tuple[str, int, int, bool], Observation] = {}
        self._tokens: dict[str, int] = {}

    def record(self, name: str, entry: Entry[Any], began: float) -> None:
        """Record the result of a read that began at ``began`` (monotonic, s). Its value is None, or has a version."""
        self.states[entry.state] += 1
        last = self._tokens.get(name, 0)
        if entry.token < last:
            self.broken.append(f"for one reader {self._query}({name!r}) went back from token {last} to {entry.token}")
        self._tokens[name] = entry.token
        if entry.value is not None:
            version, fresh = int(entry.value["version"]), entry.state is EntryState.FRESH
            self._seen[name, entry.token, version, fresh] = Observation(name, entry.token, version, fresh, began)

    def report(self, checker: Checker) -> None:
        """Pass everything to the checker."""
        for observation in self.take():
            checker.observe(observation)
        for sentence in self.broken:
            checker.report(sentence)

    def take(self) -> list[Observation]:
        """Return the observations since the last call, each value once, with the begin of its last read."""
        seen, self._seen = self._seen, {}
        return list(seen.values())


class Readers:
    """A thread and an event loop that read at a steady rate each, until they are stopped.

    Args:
        settings: of both clients, which are made and closed here.
        watched, names: what is read; all names equally often.
        reads_per_second: of both together.
        seed: of the choice.
    """

    def __init__(
        self,
        settings: ReaderSettings,
        watched: WatchedQuery,
        names: Sequence[str],
        *,
        reads_per_second: float,
        seed: int,
    ) -> None:
        self.logs: list[ObservationLog] = [ObservationLog(watched.query), ObservationLog(watched.query)]
        self._settings, self._watched, self._names = settings, watched, names
        self._interval_seconds = 2 / reads_per_second
        self._stopped = threading.Event()
        self._seed = seed
        self._threads = [
            threading.Thread(target=self._read_in_thread, args=(self.logs[0],), name="reader", daemon=True),
            threading.Thread(target=self._read_in_loop, args=(self.logs[1],), name="async-reader", daemon=True),
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End; reads under way are finished first."""
        self._stopped.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _read_in_thread(self, log: ObservationLog) -> None:
        draw = self._draw(1)
        with CacheClient(self._settings) as client:
            due = time.monotonic()
            while not self._stopped.wait(max(0.0, due - time.monotonic())):
                due, name, began = self._next(due), draw(), time.monotonic()
                try:
                    log.record(name, client.get_entry(self._watched.query, self._watched.params(name)), began)
                except CacheError as error:
                    log.failures[type(error).__name__] += 1

    def _read_in_loop(self, log: ObservationLog) -> None:
        asyncio.run(self._read_in_task(log))

    async def _read_in_task(self, log: ObservationLog) -> None:
        draw = self._draw(2)
        async with AsyncCacheClient(self._settings) as client:
            due = time.monotonic()
            while not self._stopped.is_set():
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                due, name, began = self._next(due), draw(), time.monotonic()
                try:
                    log.record(name, await client.get_entry(self._watched.query, self._watched.params(name)), began)
                except CacheError as error:
                    log.failures[type(error).__name__] += 1

    def _next(self, due: float) -> float:
        """Return when the next read is due; reads that a slow one has missed are skipped."""
        return max(due, time.monotonic() - self._interval_seconds) + self._interval_seconds

    def _draw(self, salt: int) -> Callable[[], str]:
        generator = random.Random(f"{self._seed}:{salt}")  # noqa: S311 - a popularity, no secret
        return lambda: generator.choice(self._names)
