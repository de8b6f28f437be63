"""A reader under observation, and the log of its reads."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from api_client import CacheClient, CacheError, Entry, EntryState, ReaderSettings
from refresher.checker.oracle import Checker, Observation
from refresher.checker.writer import WatchedQuery


class ObservationLog:
    """The values that one reader got, each once, and the violations that it found itself. Not thread-safe.

    Attributes:
        states: the number of reads by state.
        failures: the number of errors by type.
        broken: the violations, as text.
    """

    def __init__(self, query: str) -> None:
        self.states: Counter[EntryState] = Counter()
        self.failures: Counter[str] = Counter()
        self.broken: list[str] = []
        self._query = query
        self._seen: dict[tuple[str, int, int, bool], Observation] = {}
        self._tokens: dict[str, int] = {}

    def record(self, name: str, entry: Entry[Any], began: float) -> None:
        """Record the result of a read that began at ``began`` (monotonic, s), a value with a version, or None."""
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
        """Return the observations since the last call, each value once, with the start of its last read."""
        seen, self._seen = self._seen, {}
        return list(seen.values())


class Reader:
    """A thread that reads at a steady rate until it is stopped.

    Args:
        settings: the settings of its client, which is made and closed here.
        watched, names: the query and the names to read, all equally often.
        reads_per_second: the rate; reads missed during a slow one are skipped.
        seed: the seed of the choice among the names.
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
        self.log: ObservationLog = ObservationLog(watched.query)
        self._settings, self._watched, self._names = settings, watched, names
        self._interval_seconds = 1 / reads_per_second
        self._random = random.Random(seed)  # noqa: S311 - a popularity, no secret
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, after a read in progress."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        due = time.monotonic()
        with CacheClient(self._settings) as client:
            while not self._stopped.wait(max(0.0, due - time.monotonic())):
                name, began = self._random.choice(self._names), time.monotonic()
                due = max(due, began - self._interval_seconds) + self._interval_seconds
                try:
                    self.log.record(name, client.get_entry(self._watched.query, self._watched.params(name)), began)
                except CacheError as error:
                    self.log.failures[type(error).__name__] += 1
