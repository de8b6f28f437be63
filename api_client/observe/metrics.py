"""Metrics of a reader: their table and the events that feed them, for either back end.

A back end makes one instrument for each row of a table; `refresher.telemetry` has another table for the same back ends.
``xfetch_lock_contention`` is in both: here it counts refused claims, there messages that found another run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from api_client.observe.events import ReaderEvents, ReadFailure
from api_client.protocol.messages import RefreshReason

Record: TypeAlias = Callable[[float], Any]
"""Adds a number to a counter or an up-down counter, or a value to a histogram."""


class Kind(Enum):
    """Kind of a metric."""

    COUNTER = auto()
    """Counter, exposed with ``_total`` at the end of its name."""
    HISTOGRAM = auto()
    UP_DOWN = auto()
    """Up-down counter, summed over several processes."""
    GAUGE = auto()
    """Gauge, looked up at each export."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of a table of metrics.

    Attributes:
        event: the event that it counts, whose fields are its labels.
        amount: the field of the event to record; default: 1 per event.
        unit: the unit for OpenTelemetry.
        expected: the values of the last label to expose at 0.
    """

    name: str
    help: str
    event: str = ""
    labels: tuple[str, ...] = ("query",)
    amount: str = ""
    kind: Kind = Kind.COUNTER
    unit: str = ""
    buckets: tuple[float, ...] = ()
    expected: tuple[str, ...] = ()


class Backend(Protocol):
    """Back end of metrics: Prometheus or OpenTelemetry."""

    def bind(self, name: str, *labels: str) -> Record:
        """Return the recorder for one set of label values, exposed at 0 from now on if the back end can."""


MAX_UNPROVEN_QUERIES: Final = 200
OTHER_QUERIES: Final = "(other)"
"""The label of further names, which no query can have."""


class QueryLabels:
    """The values of the label ``query`` in one process, bounded because names may come from anybody's requests.

    Names proven by an entry or a registration are only as many as there are queries. The first `MAX_UNPROVEN_QUERIES`
    of the others have their own series; the rest share those of `OTHER_QUERIES` until they are proven.
    """

    def __init__(self) -> None:
        self._own: set[str] = set()

    def of(self, query: str, *, is_proven: bool = False) -> str:
        """Return the label's value for a query's name."""
        if query not in self._own:
            if not is_proven and len(self._own) >= MAX_UNPROVEN_QUERIES:
                return OTHER_QUERIES
            self._own.add(query)
        return query


AGE_BUCKETS_SECONDS: Final = (0.1, 0.5, 1, 5, 15, 30, 60, 150, 300, 600, 1_800, 3_600, 14_400, 86_400)
TAG_BUCKETS_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


def _age(name: str, help_: str) -> Metric:
    return Metric(name, help_, kind=Kind.HISTOGRAM, unit="s", buckets=AGE_BUCKETS_SECONDS)


def by_name(*metrics: Metric) -> Mapping[str, Metric]:
    """Return a table of metrics."""
    return {metric.name: metric for metric in metrics}


READER_METRICS: Final = by_name(
    Metric("cache_hit", "Values served from the cache, fresh or stale"),
    Metric("cache_miss", "Reads that found no value that satisfied them, and waited", "miss"),
    Metric("cache_unavailable", "Reads that found Redis unavailable", "unavailable"),
    Metric("cache_expired_served", "Values served past their soft expiry"),
    Metric("xfetch_stale_served", "Values served on a positive decision, early or past the soft expiry"),
    Metric("xfetch_single_flight_hits", "Callers that were served by another caller's wait", "single_flight_hit"),
    Metric(
        "xfetch_lock_contention", "Claims that were refused, because an earlier one was valid", "refresh_deduplicated"
    ),
    Metric("xfetch_refresh_republished", "Queued refreshes that were published again", "refresh_republished"),
    Metric(
        "xfetch_refresh_triggered",
        "Refreshes triggered: early, stale, miss, invalidated, manual",
        "refresh_triggered",
        labels=("query", "reason"),
        expected=tuple(RefreshReason),
    ),
    Metric(
        "xfetch_refresh_dropped",
        "Triggers that were not published: backlog, backpressure, breaker, repeat",
        "refresh_dropped",
        labels=("query", "why"),
    ),
    Metric(
        "xfetch_trigger_failed", "Claims that could not be made or published", "trigger_failed", labels=("query", "why")
    ),
    Metric(
        "cache_read_failed",
        "Reads that ended without a value: unavailable, timeout, refresh_failed, unknown_query, decode",
        "read_failed",
        labels=("query", "why"),
        expected=tuple(ReadFailure),
    ),
    Metric(
        "cache_unreadable",
        "Entries treated as a miss: garbage, version, flags, digest",
        "unreadable_entry",
        labels=("query", "reason"),
    ),
    Metric("cache_tag_invalidations", "Invalidations of tags: soft, hard", "tags_invalidated", labels=("kind",)),
    Metric(
        "cache_tag_entries_invalidated",
        "Entries that they made stale, or dropped",
        "tags_invalidated",
        ("kind",),
        "entries",
    ),
    Metric(
        "cache_tag_invalidation_seconds",
        "What an invalidation of tags took",
        "tags_invalidated",
        labels=("kind",),
        amount="seconds",
        kind=Kind.HISTOGRAM,
        unit="s",
        buckets=TAG_BUCKETS_SECONDS,
    ),
    _age("cache_age_at_access_seconds", "Age of the values served, from their read on"),
    _age("cache_ttl_remaining_seconds", "Time to the soft expiry of the values served; 0 past it"),
    _age("cache_stale_seconds", "For how long the values served past their soft expiry had been stale"),
)


# The metrics of a hit; most hits are recorded only in the first three.
HIT_METRICS: Final = (
    "cache_hit", "cache_age_at_access_seconds", "cache_ttl_remaining_seconds",
    "cache_expired_served", "cache_stale_seconds", "xfetch_stale_served",
)  # fmt: skip


class Metered:
    """Counts events in the metrics of a table, through a back end."""

    def __init__(self, table: Mapping[str, Metric], backend: Backend) -> None:
        self._backend, self._labels = backend, QueryLabels()
        self._by_event: dict[str, list[Metric]] = {}
        for metric in table.values():
            self._by_event.setdefault(metric.event, []).append(metric)

    def count(self, event: str, query: str | None = None, **fields: Any) -> None:
        """Record an event in each of its metrics."""
        values = fields if query is None else {"query": self._label_of(query), **fields}
        for metric in self._by_event[event]:
            record = self._backend.bind(metric.name, *(str(values[label]) for label in metric.labels))
            record(fields[metric.amount] if metric.amount else 1)

    def _label_of(self, query: str) -> str:
        return self._labels.of(query)


M = TypeVar("M", bound=type[Metered])


def counting(table: Mapping[str, Metric]) -> Callable[[M], M]:
    """Make a class count the events in ``table`` that it does not handle itself."""

    def complete(cls: M) -> M:
        for event in {metric.event for metric in table.values()} - vars(cls).keys():
            if hasattr(cls, event):
                setattr(cls, event, functools.partialmethod(Metered.count, event))
        return cls

    return complete


@counting(READER_METRICS)
class MeteredEvents(Metered, ReaderEvents):
    """Records a reader's events in the metrics of a back end."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(READER_METRICS, backend)
        self._hits: dict[str, tuple[Record, ...]] = {}

    def hit(self, query: str, *, age_seconds: float, ttl_remaining_seconds: float, triggered: bool) -> None:
        """Count a served value, with its age and remaining time."""
        hits, ages, ttls, expired, stale, triggers = self._hits.get(query) or self._expect(
            self._labels.of(query, is_proven=True)
        )
        hits(1)
        ages(age_seconds)
        if ttl_remaining_seconds > 0:
            ttls(ttl_remaining_seconds)
        else:
            ttls(0.0)  # a histogram's sum must not fall
            expired(1)
            stale(-ttl_remaining_seconds)
        if triggered:
            triggers(1)

    def tags_invalidated(self, *, hard: bool, entries: int, seconds: float) -> None:
        """Count an invalidation of tags, its entries and its duration."""
        self.count("tags_invalidated", kind="hard" if hard else "soft", entries=entries, seconds=seconds)

    def _label_of(self, query: str) -> str:
        query = super()._label_of(query)
        if query not in self._hits:
            self._expect(query)
        return query

    def _expect(self, query: str) -> tuple[Record, ...]:
        """Expose a query's counters at 0, because Prometheus sees no increase in a counter's first value."""
        bind = self._backend.bind
        for metric in READER_METRICS.values():
            if metric.labels == ("query",):
                bind(metric.name, query)
            for value in metric.expected:
                bind(metric.name, query, value)
        hits = self._hits[query] = tuple(bind(name, query) for name in HIT_METRICS)
        return hits
