"""One reading thread of a reader process: asks, counts, and watches what it is told."""

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
from refresher.demo.counters import Tally

Key: TypeAlias = tuple[str, dict[str, object]]

CHECKED_QUERY: Final = "profile"
_BLOCK: Final = 4_096
_MAX_FAILURES_KEPT: Final = 5


@dataclass(slots=True)
class Notes:
    """What a reader process has to tell since it told last.

    ``went_stale`` are keys (by number) served stale while no worker was alive; ``recovered`` maps those that have a
    newer value since to when its load began (monotonic, s).
    """

    tally: Tally = field(default_factory=Tally)
    observations: dict[tuple[str, int, bool], Observation] = field(default_factory=dict)
    went_stale: set[int] = field(default_factory=set)
    recovered: dict[int, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


class NotePad:
    """The notes of the threads of one process. Also the client's events, which come on the publisher's thread."""

    def __init__(self) -> None:
        self.lock: threading.Lock = threading.Lock()
        self.notes: Notes = Notes()
        self.events: _Counted = _Counted(self)
        # Tokens of what was served stale without a worker, by number of the key. One for all threads, so that the
        # newer value of a rarely read key is noticed soon.
        self.stale_tokens: dict[int, int] = {}

    def take(self) -> Notes:
        """Return what was noted, and begin anew."""
        with self.lock:
            notes = self.notes
            self.notes = Notes()
        return notes


class _Counted(ReaderEvents):
    """Counts what only the publisher knows."""

    def __init__(self, pad: NotePad) -> None:
        self._pad = pad

    def refresh_triggered(self, query: str, *, reason: RefreshReason) -> None:
        with self._pad.lock:
            self._pad.notes.tally.triggered += 1

    def refresh_deduplicated(self, query: str, *, state: str) -> None:
        with self._pad.lock:
            self._pad.notes.tally.deduplicated += 1

    def refresh_dropped(self, query: str, *, why: str) -> None:
        with self._pad.lock:
            self._pad.notes.tally.dropped += 1

    def trigger_failed(self, query: str, *, why: str) -> None:
        with self._pad.lock:
            self._pad.notes.tally.trigger_failures += 1


class ReaderThread:
    """Reads at a pace, key after key as they are popular, until it is told to stop.

    Args:
        client: shared by the threads of the process.
        pad: likewise.
        keys, weights: what is asked for, and how often.
        seed: of the draws.
        interval_seconds: between the begins of two reads; a read that took longer is not made up for.
        worker_is_gone: whether no worker is alive right now.
    """

    def __init__(
        self,
        client: CacheClient,
        pad: NotePad,
        keys: Sequence[Key],
        weights: Sequence[float],
        *,
        seed: int,
        interval_seconds: float,
        worker_is_gone: Callable[[], bool],
    ) -> None:
        self._client, self._pad, self._keys = client, pad, keys
        self._cumulated = list(accumulate(weights))
        self._random = random.Random(seed)  # noqa: S311 - a popularity, no secret
        self._interval_seconds, self._worker_is_gone = interval_seconds, worker_is_gone
        self._last_tokens: dict[int, int] = {}

    def run(self, stopped: Callable[[], bool]) -> None:
        """Read until ``stopped`` says so."""
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
        """Read one key and note what came."""
        query, params = self._keys[number]
        began = time.monotonic()
        try:
            entry = self._client.get_entry(query, params)
        except CacheError as error:
            with self._pad.lock:
                notes = self._pad.notes
                notes.tally.failed += 1
                if len(notes.failures) < _MAX_FAILURES_KEPT:
                    notes.failures.append(f"{type(error).__name__}: {error}")
            return
        took_seconds = time.monotonic() - began
        with self._pad.lock:
            self._count(self._pad.notes.tally, entry, took_seconds)
            self._watch(self._pad.notes, number, entry, began)

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

    def _watch(self, notes: Notes, number: int, entry: Entry[Any], began: float) -> None:
        query, params = self._keys[number]
        last = self._last_tokens.get(number, 0)
        if entry.token < last:
            notes.broken.append(f"{query}({params}) went back from token {last} to {entry.token}")
        self._last_tokens[number] = entry.token
        if query == CHECKED_QUERY and entry.value is not None:
            fresh = entry.state is EntryState.FRESH
            name = str(params["name"])
            notes.observations[name, entry.token, fresh] = Observation(
                name, entry.token, int(entry.value["version"]), fresh, began
            )
        self._watch_recovery(notes, number, entry)

    def _watch_recovery(self, notes: Notes, number: int, entry: Entry[Any]) -> None:
        stale_tokens = self._pad.stale_tokens
        if self._worker_is_gone():
            if entry.state is EntryState.STALE and number not in stale_tokens:
                stale_tokens[number] = entry.token
                notes.went_stale.add(number)
        elif entry.token > stale_tokens.get(number, entry.token):
            del stale_tokens[number]
            notes.recovered[number] = time.monotonic() - entry.age
