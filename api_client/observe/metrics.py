"""Hits, noted one by one and counted together.

A hit is to cost next to nothing, and two histograms and two counters take a tenth of it when each is told at
once. So a hit is noted (one append), and what was noted is added up together: at every 256th hit, and whenever those
who count are asked for their numbers (`HitBatcher.flush`).
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import repeat
from typing import Final, TypeAlias

from api_client.observe.events import HitNote
from api_client.threads import start_thread

FOLD_AT: Final = 256
FLUSH_SECONDS: Final = 0.5

Count: TypeAlias = Callable[[str, list[float], list[float], int], object]
"""Counts hits of a query: their ages, what was left to their soft expiry (seconds), and how many triggered."""


def _always() -> bool:
    return True


class HitBatcher:
    """The hits that were noted in this process, and are not counted yet. Thread-safe.

    Args:
        count: counts the hits of one query; is never called by two threads at a time.
        is_asked: whether somebody calls `flush` for the numbers; otherwise a thread does, every half second.
    """

    def __init__(self, count: Count, *, is_asked: Callable[[], bool] = _always) -> None:
        # A weak one: what counts holds this, and the thread must end with both.
        self._count, self._is_asked = weakref.WeakMethod(count), is_asked
        self.begin()
        _all_notes.add(self)

    def begin(self) -> None:
        """Begin to note hits, in this process: what its parent has noted is the parent's to count."""
        self._noted: deque[HitNote] = deque()
        self._folding = threading.RLock()
        self._is_flushed = self._is_asked()

    def note(self, note: HitNote) -> None:
        """Note a hit."""
        self._noted.append(note)
        if len(self._noted) >= FOLD_AT or not self._is_flushed:
            self._noted_enough()

    def flush(self) -> None:
        """Count what has been noted."""
        with self._folding:
            self._fold()

    def _noted_enough(self) -> None:
        try:  # in here, for a signal handler may raise as soon as it is held
            # Whoever meets another one at it leaves it to that one.
            if not self._folding.acquire(blocking=False):
                return
            if not self._is_flushed:
                start_thread(partial(_flush_for_ever, weakref.ref(self)), "refresher-metrics")
                self._is_flushed = True
            self._fold()
        finally:
            try:  # noqa: SIM105 - one call more could be interrupted
                self._folding.release()
            except RuntimeError:  # another thread has it
                pass

    def _fold(self) -> None:
        count, noted = self._count(), list[HitNote]()
        with suppress(IndexError):  # a signal handler has taken some
            for _ in repeat(None, len(self._noted)):
                noted.append(self._noted.popleft())
        by_query: defaultdict[str, list[HitNote]] = defaultdict(list)
        for note in noted:
            by_query[note[0]].append(note)
        for query, notes in by_query.items():
            _, ages_us, left_us, triggered = zip(*notes, strict=True)
            if count is not None:
                count(
                    query,
                    [age_us / 1e6 for age_us in ages_us],
                    [one_us / 1e6 for one_us in left_us],
                    sum(triggered),
                )


def _flush_for_ever(notes: weakref.ref[HitBatcher]) -> None:
    while (found := notes()) is not None:
        found.flush()
        del found
        time.sleep(FLUSH_SECONDS)


_all_notes: weakref.WeakSet[HitBatcher] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for notes in list(_all_notes):
        notes.begin()


os.register_at_fork(after_in_child=_after_fork_in_child)


AGE_BUCKETS_SECONDS: Final = (0.1, 0.5, 1, 5, 15, 30, 60, 150, 300, 600, 1_800, 3_600, 14_400, 86_400)

# Counters; the names end with _total where they are shown.
COUNTERS: Final = {
    "cache_hit": "Values served from the cache, fresh or stale",
    "cache_miss": "Reads that found nothing good enough, and waited",
    "cache_unavailable": "Reads that found Redis unavailable",
    "cache_expired_served": "Values served past their soft expiry",
    "xfetch_stale_served": "Values served on a positive decision, early or past the soft expiry",
    "xfetch_single_flight_hits": "Callers that were served by a wait which another caller had begun",
    "xfetch_lock_contention": "Claims that were refused, since somebody else's stood",
    "xfetch_refresh_republished": "Queued refreshes that were published once more",
}
# As well, with a label more.
LABELLED: Final = {
    "xfetch_refresh_triggered": ("reason", "Refreshes asked for: early, stale, miss, invalidated, manual"),
    "xfetch_refresh_dropped": ("why", "Triggers that were not published: backlog, backpressure, breaker, repeat"),
    "xfetch_trigger_failed": ("why", "Claims that could not be made or published"),
    "cache_read_failed": (
        "why",
        "Reads that ended without a value: unavailable, timeout, refresh_failed, unknown_query, decode",
    ),
    "cache_unreadable": ("reason", "Entries treated as a miss: garbage, version, flags, digest"),
}
# Histograms over AGE_BUCKETS_SECONDS.
AGES: Final = {
    "cache_age_at_access_seconds": "Age of the values served, from their read on",
    "cache_ttl_remaining_seconds": "Time to the soft expiry of the values served; 0 past it",
    "cache_stale_seconds": "For how long the values served past their soft expiry had been stale",
}
