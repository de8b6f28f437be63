"""A reader's events as Prometheus metrics. Needs prometheus_client: ``pip install 'refresher[metrics]'``.

A hit is to cost next to nothing, and two histograms and two counters take a tenth of it when each is told at
once. So a hit is noted (one append), and what was noted is added up together: at every 256th hit, before each
scrape of the registry, and in multiprocess mode, where other processes are scraped, every half second as well.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram, Metric, values

from api_client.events import HitNote, ReaderEvents, RefreshReason

FOLD_AT: Final = 256
FLUSH_SECONDS: Final = 0.5
AGE_BUCKETS_SECONDS: Final = (0.1, 0.5, 1, 5, 15, 30, 60, 150, 300, 600, 1_800, 3_600, 14_400, 86_400)


class PrometheusEvents(ReaderEvents):
    """Counts what readers tell, in a registry of prometheus_client; all metrics are labelled by ``query``.

    One object serves all clients of a process. Under a forking server (gunicorn) prometheus_client's multiprocess
    mode works as it is: PROMETHEUS_MULTIPROC_DIR names a folder, and whoever serves the metrics uses its
    MultiProcessCollector.

    Args:
        registry: where the metrics are registered; default: prometheus_client's own.

    Raises:
        ValueError: the registry has these metrics already (one object a registry).
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        # First, so that it is first to be collected.
        registry.register(_BeforeEachScrape(self))
        self._counters = {name: _counter(registry, name, help_) for name, help_ in _COUNTERS.items()}
        self._labelled = {
            name: Counter(name, help_, ("query", label), registry=registry)
            for name, (label, help_) in _LABELLED.items()
        }
        self._ages = _histogram(registry, "cache_age_at_access_seconds", "Age of the values served, from their read on")
        self._left = _histogram(
            registry, "cache_ttl_remaining_seconds", "Time to the soft expiry of the values served; 0 past it"
        )
        self._stale = _histogram(
            registry, "cache_stale_seconds", "For how long the values served past their soft expiry had been stale"
        )
        self._of_query: dict[str, _HitMetrics] = {}
        self._begin()
        _all_events.add(self)

    def note_hit(self, note: HitNote) -> None:
        """Note a value served."""
        self._noted.append(note)
        if len(self._noted) >= FOLD_AT or not self._is_flushed:
            self._noted_enough()

    def hit(self, query: str, *, age_seconds: float, ttl_remaining_seconds: float, triggered: bool) -> None:
        """Count a value served, for a reader that tells of it at once."""
        self._metrics_of(query).count([age_seconds], [ttl_remaining_seconds], triggered=int(triggered))

    def miss(self, query: str) -> None:
        """Count a read that waits."""
        self._count("cache_miss", query)

    def single_flight_hit(self, query: str, *, waited_seconds: float) -> None:
        """Count a caller that was served by another one's wait."""
        self._count("xfetch_single_flight_hits", query)

    def unreadable_entry(self, query: str, *, reason: str) -> None:
        """Count an entry that was treated as a miss."""
        self._labelled["cache_unreadable"].labels(query, reason).inc()

    def refresh_triggered(self, query: str, *, reason: RefreshReason) -> None:
        """Count a claim that was granted and published."""
        self._labelled["xfetch_refresh_triggered"].labels(query, reason.value).inc()

    def refresh_republished(self, query: str) -> None:
        """Count a refresh that was published once more."""
        self._count("xfetch_refresh_republished", query)

    def refresh_deduplicated(self, query: str, *, state: str) -> None:
        """Count a claim that was refused."""
        self._count("xfetch_lock_contention", query)

    def refresh_dropped(self, query: str, *, why: str) -> None:
        """Count a trigger that was not claimed."""
        self._labelled["xfetch_refresh_dropped"].labels(query, why).inc()

    def trigger_failed(self, query: str, *, why: str) -> None:
        """Count a claim that could not be made or published."""
        self._labelled["xfetch_trigger_failed"].labels(query, why).inc()

    def unavailable(self, query: str) -> None:
        """Count a read that found Redis unavailable."""
        self._count("cache_unavailable", query)

    def flush(self) -> None:
        """Add up the hits that have been noted; whoever pushes metrics instead of being scraped calls it before."""
        with self._folding:
            self._fold()

    def _begin(self) -> None:
        """Begin to note hits, in this process: what its parent has noted is the parent's to count."""
        self._noted: deque[HitNote] = deque()
        self._folding = threading.Lock()
        # Without other processes to be scraped by, a scrape flushes.
        self._is_flushed = not values.ValueClass._multiprocess  # noqa: SLF001 - it has no public name

    def _noted_enough(self) -> None:
        # Whoever meets another one at it leaves it to that one.
        if not self._folding.acquire(blocking=False):
            return
        try:
            if not self._is_flushed:
                self._is_flushed = True
                threading.Thread(
                    target=_flush_for_ever, args=(weakref.ref(self),), name="refresher-metrics", daemon=True
                ).start()
            self._fold()
        finally:
            self._folding.release()

    def _fold(self) -> None:
        take = self._noted.popleft
        by_query: defaultdict[str, list[HitNote]] = defaultdict(list)
        for note in [take() for _ in repeat(None, len(self._noted))]:
            by_query[note[0]].append(note)
        for query, notes in by_query.items():
            _, ages_us, left_us, triggered = zip(*notes, strict=True)
            self._metrics_of(query).count(
                [age_us / 1e6 for age_us in ages_us],
                [one_us / 1e6 for one_us in left_us],
                triggered=sum(triggered),
            )

    def _count(self, name: str, query: str) -> None:
        self._metrics_of(query)
        self._counters[name].labels(query).inc()

    def _metrics_of(self, query: str) -> _HitMetrics:
        metrics = self._of_query.get(query)
        if metrics is None:
            self._expect(query)
            metrics = self._of_query[query] = self._hit_metrics(query)
        return metrics

    def _expect(self, query: str) -> None:
        """Show a query's counters at 0: what one has when it is first seen is no increase to Prometheus."""
        for counter in self._counters.values():
            counter.labels(query)
        for reason in RefreshReason:
            self._labelled["xfetch_refresh_triggered"].labels(query, reason.value)

    def _hit_metrics(self, query: str) -> _HitMetrics:
        return _HitMetrics(
            hits=self._counters["cache_hit"].labels(query),
            decided=self._counters["xfetch_stale_served"].labels(query),
            expired=self._counters["cache_expired_served"].labels(query),
            ages=self._ages.labels(query),
            left=self._left.labels(query),
            stale=self._stale.labels(query),
        )


@dataclass(frozen=True, slots=True)
class _HitMetrics:
    """The metrics of one query's hits."""

    hits: Counter
    decided: Counter
    expired: Counter
    ages: Histogram
    left: Histogram
    stale: Histogram

    def count(self, ages: list[float], left: list[float], *, triggered: int) -> None:
        """Count hits by their ages and what was left of them, in seconds; sorts both."""
        ages.sort()
        left.sort()
        expired = bisect_right(left, 0.0)
        if expired:
            _observe_all(self.stale, [-seconds for seconds in reversed(left[:expired])])
            left[:expired] = [0.0] * expired  # a histogram's sum must not fall
        self.hits.inc(len(ages))
        self.decided.inc(triggered)
        self.expired.inc(expired)
        _observe_all(self.ages, ages)
        _observe_all(self.left, left)


def _observe_all(histogram: Any, in_order: Sequence[float]) -> None:
    # observe() takes one at a time, and a lock or a page of a file for each: that is what this module is to avoid.
    histogram._sum.inc(sum(in_order))  # noqa: SLF001 - a test holds that prometheus_client keeps these three so
    below = 0
    for bound, bucket in zip(histogram._upper_bounds, histogram._buckets, strict=True):  # noqa: SLF001 - as above
        counted, below = below, bisect_right(in_order, bound)
        if below > counted:
            bucket.inc(below - counted)


@functools.cache
def default_events() -> PrometheusEvents:
    """Return what counts in prometheus_client's own registry, for all clients of the process (CACHE_METRICS)."""
    return PrometheusEvents()


class _BeforeEachScrape:
    """A collector of nothing, which has what was noted added up before the others are collected."""

    def __init__(self, events: PrometheusEvents) -> None:
        self._events = weakref.ref(events)

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> list[Metric]:
        events = self._events()
        if events is not None:
            events.flush()
        return []


def _flush_for_ever(events: weakref.ref[PrometheusEvents]) -> None:
    pause = threading.Event()
    while (found := events()) is not None:
        found.flush()
        del found
        pause.wait(FLUSH_SECONDS)


def _counter(registry: CollectorRegistry, name: str, help_: str) -> Counter:
    return Counter(name, help_, ("query",), registry=registry)


def _histogram(registry: CollectorRegistry, name: str, help_: str) -> Histogram:
    return Histogram(name, help_, ("query",), registry=registry, buckets=AGE_BUCKETS_SECONDS)


# prometheus_client adds _total to each.
_COUNTERS: Final = {
    "cache_hit": "Values served from the cache, fresh or stale",
    "cache_miss": "Reads that found nothing good enough, and waited",
    "cache_unavailable": "Reads that found Redis unavailable",
    "cache_expired_served": "Values served past their soft expiry",
    "xfetch_stale_served": "Values served on a positive decision, early or past the soft expiry",
    "xfetch_single_flight_hits": "Callers that were served by a wait which another caller had begun",
    "xfetch_lock_contention": "Claims that were refused, since somebody else's stood",
    "xfetch_refresh_republished": "Queued refreshes that were published once more",
}
_LABELLED: Final = {
    "xfetch_refresh_triggered": ("reason", "Refreshes asked for: early, stale, miss, invalidated, manual"),
    "xfetch_refresh_dropped": ("why", "Triggers that were not claimed: backlog, backpressure, breaker"),
    "xfetch_trigger_failed": ("why", "Claims that could not be made or published"),
    "cache_unreadable": ("reason", "Entries treated as a miss: garbage, version, flags, digest"),
}

_all_events: weakref.WeakSet[PrometheusEvents] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for events in list(_all_events):
        events._begin()  # noqa: SLF001 - this module's own class


os.register_at_fork(after_in_child=_after_fork_in_child)
