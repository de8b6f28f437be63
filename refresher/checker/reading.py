"""Readers that are watched: what each was told, and what it noticed itself."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from api_client import AsyncCacheClient, CacheClient, CacheError, Entry, EntryState, ReaderSettings
from refresher.checker.judging import Checker, Observation
from refresher.checker.writing import Watched


class Diary:
    """What one reader saw, each thing once, and what it noticed itself. Not thread-safe.

    Attributes:
        states: how many reads ended in each state.
        failures: how many ended in each error, by its type.
        broken: what must not be, in words.
    """

    def __init__(self, query: str) -> None:
        self.states: Counter[EntryState] = Counter()
        self.failures: Counter[str] = Counter()
        self.broken: list[str] = []
        self._query = query
        self._seen: dict[tuple[str, int, int, bool], Observation] = {}
        self._tokens: dict[str, int] = {}

    def note(self, name: str, entry: Entry[Any], began: float) -> None:
        """Note an answer to a read that began then (monotonic, s). Its value is None, or has a version."""
        self.states[entry.state] += 1
        last = self._tokens.get(name, 0)
        if entry.token < last:
            self.broken.append(f"to one reader {self._query}({name!r}) went back from token {last} to {entry.token}")
        self._tokens[name] = entry.token
        if entry.value is not None:
            version, fresh = int(entry.value["version"]), entry.state is EntryState.FRESH
            self._seen[name, entry.token, version, fresh] = Observation(name, entry.token, version, fresh, began)

    def tell(self, checker: Checker) -> None:
        """Hand all of it to the checker."""
        for observation in self.take():
            checker.observe(observation)
        for sentence in self.broken:
            checker.report(sentence)

    def take(self) -> list[Observation]:
        """Return what was seen since the last call, each thing once, with the begin of its last read."""
        seen, self._seen = self._seen, {}
        return list(seen.values())


class Readers:
    """A thread that reads, and an event loop that does: at a steady rate each, until they are stopped.

    Args:
        settings: of both clients, which are made and closed here.
        watched, names: what is read; any name as often as any other.
        reads_per_second: of both together.
        seed: of the choice.
    """

    def __init__(
        self, settings: ReaderSettings, watched: Watched, names: Sequence[str], *, reads_per_second: float, seed: int
    ) -> None:
        self.diaries: list[Diary] = [Diary(watched.query), Diary(watched.query)]
        self._settings, self._watched, self._names = settings, watched, names
        self._interval_seconds = 2 / reads_per_second
        self._stopped = threading.Event()
        self._seed = seed
        self._threads = [
            threading.Thread(target=self._read_in_thread, args=(self.diaries[0],), name="reader", daemon=True),
            threading.Thread(target=self._read_in_loop, args=(self.diaries[1],), name="async-reader", daemon=True),
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

    def _read_in_thread(self, diary: Diary) -> None:
        draw = self._draw(1)
        with CacheClient(self._settings) as client:
            due = time.monotonic()
            while not self._stopped.wait(max(0.0, due - time.monotonic())):
                due, name, began = self._next(due), draw(), time.monotonic()
                try:
                    diary.note(name, client.get_entry(self._watched.query, self._watched.params(name)), began)
                except CacheError as error:
                    diary.failures[type(error).__name__] += 1

    def _read_in_loop(self, diary: Diary) -> None:
        asyncio.run(self._read_in_task(diary))

    async def _read_in_task(self, diary: Diary) -> None:
        draw = self._draw(2)
        async with AsyncCacheClient(self._settings) as client:
            due = time.monotonic()
            while not self._stopped.is_set():
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                due, name, began = self._next(due), draw(), time.monotonic()
                try:
                    diary.note(name, await client.get_entry(self._watched.query, self._watched.params(name)), began)
                except CacheError as error:
                    diary.failures[type(error).__name__] += 1

    def _next(self, due: float) -> float:
        """Return when the next read is due; what a slow one has missed is not made up for."""
        return max(due, time.monotonic() - self._interval_seconds) + self._interval_seconds

    def _draw(self, salt: int) -> Callable[[], str]:
        generator = random.Random(f"{self._seed}:{salt}")  # noqa: S311 - a popularity, no secret
        return lambda: generator.choice(self._names)
