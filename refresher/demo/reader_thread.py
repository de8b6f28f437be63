"""One thread of a reader process: reads, counts, and checks what it gets."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final, TypeAlias

from api_client import CacheClient, CacheError, Entry, EntryState, ReaderEvents, RefreshReason, RefreshState
from refresher.checker.oracle import Observation
from refresher.demo.state import Tally

Key: TypeAlias = tuple[str, dict[str, object]]

CHECKED_QUERY: Final = "profile"
_BLOCK: Final = 4_096
_MAX_FAILURES_KEPT: Final = 5


@dataclass(slots=True)
class Report:
    """What a reader process has seen since its last report.

    ``went_stale`` are keys (by number) served stale while no worker was alive; ``recovered`` maps those that have a
    newer value since to when its load began (monotonic, s).
    """

    tally: Tally = field(default_factory=Tally)
    observations: dict[tuple[str, int, bool], Observation] = field(default_factory=dict)
    went_stale: set[int] = field(default_factory=set)
    recovered: dict[int, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


class ReportBuffer(ReaderEvents):
    """The report of all threads of a process. As the client's events it counts what the publisher's thread does."""

    def __init__(self) -> None:
        self.lock: threading.Lock = threading.Lock()
        self.report: Report = Report()
        # Tokens of values served stale without a worker, by number of the key. Shared by all threads, so that the newer
        # value of a rarely read key is noticed soon.
        self.stale_tokens: dict[int, int] = {}

    def take(self) -> Report:
        """Return the report, and begin a new one."""
        with self.lock:
            report, self.report = self.report, Report()
        return report

    def refresh_triggered(self, query: str, *, reason: RefreshReason) -> None:
        """Count a trigger."""
        with self.lock:
            self.report.tally.triggered += 1

    def refresh_deduplicated(self, query: str, *, state: str) -> None:
        """Count a trigger that met a lease."""
        with self.lock:
            self.report.tally.deduplicated += 1

    def refresh_dropped(self, query: str, *, why: str) -> None:
        """Count a dropped trigger."""
        with self.lock:
            self.report.tally.dropped += 1

    def trigger_failed(self, query: str, *, why: str) -> None:
        """Count a failed trigger."""
        with self.lock:
            self.report.tally.trigger_failures += 1


class ReaderThread:
    """Reads keys at a steady rate, drawn by popularity.

    Args:
        client, buffer: shared by the threads of the process.
        keys, weights: what is read, and how often.
        seed: of the draws.
        interval_seconds: between the begins of two reads; reads that a slow one has missed are skipped.
        worker_is_gone: whether no worker is alive right now.
    """

    def __init__(
        self,
        client: CacheClient,
        buffer: ReportBuffer,
        keys: Sequence[Key],
        weights: Sequence[float],
        *,
        seed: int,
        interval_seconds: float,
        worker_is_gone: Callable[[], bool],
    ) -> None:
        self._client, self._buffer, self._keys = client, buffer, keys
        self._cumulated = list(accumulate(weights))
        self._random = random.Random(seed)  # noqa: S311 - a popularity, no secret
        self._interval_seconds, self._worker_is_gone = interval_seconds, worker_is_gone
        self._last_tokens: dict[int, int] = {}

    def run(self, stopped: Callable[[], bool]) -> None:
        """Read until ``stopped`` returns True."""
        next_at = time.monotonic()
        while not stopped():
            for number in self._random.choices(range(len(self._keys)), cum_weights=self._cumulated, k=_BLOCK):
                if stopped():
                    return
                self.read(number)
                now = time.monotonic()
                next_at = max(next_at + self._interval_seconds, now - self._interval_seconds)
                if next_at > now:
                    time.sleep(next_at - now)

    def read(self, number: int) -> None:
        """Read one key and record the result."""
        query, params = self._keys[number]
        began = time.monotonic()
        try:
            entry = self._client.get_entry(query, params)
        except CacheError as error:
            with self._buffer.lock:
                report = self._buffer.report
                report.tally.failed += 1
                if len(report.failures) < _MAX_FAILURES_KEPT:
                    report.failures.append(f"{type(error).__name__}: {error}")
            return
        took_seconds = time.monotonic() - began
        with self._buffer.lock:
            self._count(self._buffer.report.tally, entry, took_seconds)
            self._watch(self._buffer.report, number, entry, began)

    def _count(self, tally: Tally, entry: Entry[Any], took_seconds: float) -> None:
        if entry.refresh is RefreshState.SUPPRESSED:
            tally.suppressed += 1
        if entry.state is EntryState.MISS:
            tally.misses += 1
            tally.waited.record(took_seconds)
            return
        if entry.state is EntryState.FRESH:
            tally.fresh += 1
        else:
            tally.stale += 1
            tally.overdue_seconds = max(tally.overdue_seconds, -entry.ttl_remaining)
        tally.at_once.record(took_seconds)
        if self._worker_is_gone():
            tally.without_worker.record(took_seconds)

    def _watch(self, report: Report, number: int, entry: Entry[Any], began: float) -> None:
        query, params = self._keys[number]
        last = self._last_tokens.get(number, 0)
        if entry.token < last:
            report.broken.append(f"{query}({params}) went back from token {last} to {entry.token}")
        self._last_tokens[number] = entry.token
        if query == CHECKED_QUERY and entry.value is not None:
            fresh = entry.state is EntryState.FRESH
            name = str(params["name"])
            report.observations[name, entry.token, fresh] = Observation(
                name, entry.token, int(entry.value["version"]), fresh, began
            )
        self._watch_recovery(report, number, entry)

    def _watch_recovery(self, report: Report, number: int, entry: Entry[Any]) -> None:
        stale_tokens = self._buffer.stale_tokens
        if self._worker_is_gone():
            if entry.state is EntryState.STALE and number not in stale_tokens:
                stale_tokens[number] = entry.token
                report.went_stale.add(number)
        elif entry.token > stale_tokens.get(number, entry.token):
            del stale_tokens[number]
            report.recovered[number] = time.monotonic() - entry.age
