"""A reader's events as OpenTelemetry metrics, and its refreshes as spans. ``pip install 'refresher[otel]'``.

It needs OpenTelemetry's API alone: which SDK there is, and where it sends to, is the application's to say.
"""

from __future__ import annotations

import functools
import os
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from opentelemetry import metrics, trace

from api_client import metric_names
from api_client._version import __version__
from api_client.events import HitNote, ReaderEvents, ReadFailure, RefreshReason
from api_client.hit_notes import HitNotes
from api_client.otel_spans import OTelReaderSpans
from api_client.spans import ReaderSpans

SCOPE: Final = "refresher"
# A histogram takes a value at a time, some microseconds each, of which each hit has two or three.
MOST_RECORDED: Final = 1_024
ONE_IN: Final = 64


class OTelEvents(ReaderEvents):
    """Counts what readers tell by OpenTelemetry, and traces their refreshes and waits.

    One object serves all clients of a process. The metrics are those of `PrometheusEvents`, by the same names, with an
    attribute ``query``. Their histograms hold the first thousand hits between two exports, and one in 64 beyond.

    Args:
        tracer_provider: default: the application's own (`opentelemetry.trace.get_tracer_provider`).
        meter_provider: default: as well (`opentelemetry.metrics.get_meter_provider`).
    """

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self.spans: ReaderSpans = OTelReaderSpans(trace.get_tracer(SCOPE, __version__, tracer_provider))
        meter = metrics.get_meter(SCOPE, __version__, meter_provider)
        self._notes = HitNotes(self._count_hits)
        self.note_hit: Callable[[HitNote], None] | None = self._notes.note
        self._hits: defaultdict[str, _Hits] = defaultdict(_Hits)
        for name in _HITS:
            meter.create_observable_counter(
                f"{name}_total",
                [functools.partial(_observed, weakref.ref(self), name)],
                "",
                metric_names.COUNTERS[name],
            )
        rest = metric_names.COUNTERS | {name: help_ for name, (_, help_) in metric_names.LABELLED.items()}
        self._counters = {
            name: meter.create_counter(f"{name}_total", "", help_) for name, help_ in rest.items() if name not in _HITS
        }
        self._ages, self._left, self._stale = (
            meter.create_histogram(
                name, "s", help_, explicit_bucket_boundaries_advisory=metric_names.AGE_BUCKETS_SECONDS
            )
            for name, help_ in metric_names.AGES.items()
        )
        self._recorded = 0
        _all_events.add(self)

    def hit(self, query: str, *, age_seconds: float, ttl_remaining_seconds: float, triggered: bool) -> None:
        """Count a value served, for a reader that tells of it at once."""
        self._notes.note((query, round(age_seconds * 1e6), round(ttl_remaining_seconds * 1e6), triggered))

    def miss(self, query: str) -> None:
        """Count a read that waits."""
        self._add("cache_miss", query)

    def single_flight_hit(self, query: str, *, waited_seconds: float) -> None:
        """Count a caller that was served by another one's wait."""
        self._add("xfetch_single_flight_hits", query)

    def unreadable_entry(self, query: str, *, reason: str) -> None:
        """Count an entry that was treated as a miss."""
        self._add("cache_unreadable", query, reason)

    def refresh_triggered(self, query: str, *, reason: RefreshReason) -> None:
        """Count a claim that was granted and published."""
        self._add("xfetch_refresh_triggered", query, reason.value)

    def refresh_republished(self, query: str) -> None:
        """Count a refresh that was published once more."""
        self._add("xfetch_refresh_republished", query)

    def refresh_deduplicated(self, query: str, *, state: str) -> None:
        """Count a claim that was refused."""
        self._add("xfetch_lock_contention", query)

    def refresh_dropped(self, query: str, *, why: str) -> None:
        """Count a trigger that was not claimed."""
        self._add("xfetch_refresh_dropped", query, why)

    def trigger_failed(self, query: str, *, why: str) -> None:
        """Count a claim that could not be made or published."""
        self._add("xfetch_trigger_failed", query, why)

    def unavailable(self, query: str) -> None:
        """Count a read that found Redis unavailable."""
        self._add("cache_unavailable", query)

    def read_failed(self, query: str, *, why: ReadFailure) -> None:
        """Count a read that ended without a value."""
        self._add("cache_read_failed", query, why.value)

    def _add(self, name: str, query: str, label: str = "") -> None:
        attributes = {"query": query}
        if label:
            attributes[metric_names.LABELLED[name][0]] = label
        self._counters[name].add(1, attributes)

    def _count_hits(self, query: str, ages: list[float], left: list[float], triggered: int) -> None:
        hits = self._hits[query]
        hits.cache_hit += len(ages)
        hits.xfetch_stale_served += triggered
        hits.cache_expired_served += sum(one <= 0 for one in left)
        attributes = {"query": query}
        every = 1 if self._recorded < MOST_RECORDED else ONE_IN
        for age, one_left in zip(ages[::every], left[::every], strict=True):
            self._recorded += 1
            self._ages.record(age, attributes)
            self._left.record(max(0.0, one_left), attributes)
            if one_left <= 0:
                self._stale.record(-one_left, attributes)

    def observe(self, name: str) -> list[metrics.Observation]:
        """Return what has been counted of hits until now; an export asks for it."""
        self._recorded = 0
        self._notes.flush()
        return [metrics.Observation(getattr(hits, name), {"query": query}) for query, hits in [*self._hits.items()]]

    def _begin(self) -> None:
        """Begin to count, in this process: what its parent has counted is the parent's to tell."""
        self._hits.clear()


@dataclass(slots=True)
class _Hits:
    """What one query's hits add up to."""

    cache_hit: int = 0
    xfetch_stale_served: int = 0
    cache_expired_served: int = 0


_HITS: Final = ("cache_hit", "xfetch_stale_served", "cache_expired_served")


@functools.cache
def default_events() -> OTelEvents:
    """Return what tells the application's own providers, for all clients of the process (CACHE_OTEL)."""
    return OTelEvents()


def _observed(events: weakref.ref[OTelEvents], name: str, _: metrics.CallbackOptions) -> Iterable[metrics.Observation]:
    found = events()
    return () if found is None else found.observe(name)


_all_events: weakref.WeakSet[OTelEvents] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for events in list(_all_events):
        events._begin()  # noqa: SLF001 - this module's own class


os.register_at_fork(after_in_child=_after_fork_in_child)
