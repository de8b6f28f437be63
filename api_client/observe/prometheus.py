"""A reader's events as Prometheus metrics. Needs prometheus_client: ``pip install 'refresher[metrics]'``.

Hits are noted, and added up together (`hit_notes`): before each scrape of the registry, and in multiprocess mode, where
other processes are scraped, every half second as well.
"""

from __future__ import annotations

import functools
import weakref
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram, Metric, values

from api_client.observe.events import HitNote, ReaderEvents, ReadFailure
from api_client.observe.metrics import AGE_BUCKETS_SECONDS, AGES, COUNTERS, LABELLED, HitBatcher
from api_client.protocol.messages import RefreshReason


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
        self._counters = {name: Counter(name, help_, ("query",), registry=registry) for name, help_ in COUNTERS.items()}
        self._labelled = {
            name: Counter(name, help_, ("query", label), registry=registry) for name, (label, help_) in LABELLED.items()
        }
        self._ages, self._left, self._stale = (
            Histogram(name, help_, ("query",), registry=registry, buckets=AGE_BUCKETS_SECONDS)
            for name, help_ in AGES.items()
        )
        self._of_query: dict[str, _HitMetrics] = {}
        self._notes = HitBatcher(self._count_hits, is_asked=_is_scraped_here)
        self.note_hit: Callable[[HitNote], None] = self._notes.note

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

    def read_failed(self, query: str, *, why: ReadFailure) -> None:
        """Count a read that ended without a value."""
        self._metrics_of(query)
        self._labelled["cache_read_failed"].labels(query, why.value).inc()

    def flush(self) -> None:
        """Add up the hits that have been noted; whoever pushes metrics instead of being scraped calls it before."""
        self._notes.flush()

    def _count_hits(self, query: str, ages: list[float], left: list[float], triggered: int) -> None:
        self._metrics_of(query).count(ages, left, triggered=triggered)

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
        for why in ReadFailure:
            self._labelled["cache_read_failed"].labels(query, why.value)

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


def _is_scraped_here() -> bool:
    # Without other processes to be scraped by, a scrape flushes.
    return not values.ValueClass._multiprocess  # noqa: SLF001 - it has no public name
