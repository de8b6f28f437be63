"""A reader's events as OpenTelemetry metrics, and its refreshes as spans. ``pip install 'refresher[otel]'``.

It needs OpenTelemetry's API alone: which SDK there is, and where it sends to, is the application's to say.
"""

from __future__ import annotations

import functools
import os
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import time_ns
from typing import Final

from opentelemetry import context, metrics, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from api_client._version import __version__
from api_client.errors import RefreshFailed
from api_client.observe import metrics as metric_names
from api_client.observe.events import HitNote, ReaderEvents, ReadFailure
from api_client.observe.metrics import HitBatcher
from api_client.observe.tracing import ReaderSpans, TriggerTrace
from api_client.protocol.keys import CacheKey
from api_client.protocol.messages import RefreshReason

# Between our own two sides, whatever the application propagates by. Its baggage stays with it: a refresh is for all.
PROPAGATOR: Final = TraceContextTextMapPropagator()


class OTelReaderSpans(ReaderSpans):
    """The spans of a reader, made by ``tracer``."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def asked(self, key: CacheKey, reason: str) -> TriggerTrace:
        """Keep the caller's context for the refresh that its read has just asked for."""
        return _Asking(self._tracer, key, reason)

    @contextmanager
    def waiting(self, keys: Sequence[CacheKey]) -> Iterator[None]:
        """Return a span around the wait for these keys' values."""
        if len(keys) == 1:
            name, attributes = f"wait {keys[0].query}", key_attributes(keys[0])
        else:
            name, attributes = "wait", {"refresher.keys": len(keys)}
        span = self._tracer.start_span(name, attributes=attributes)
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield
            except BaseException as error:
                failed(span, type(error).__name__)
                if isinstance(error, RefreshFailed):
                    span.set_attribute("refresher.why", error.kind)
                raise


class _Asking(TriggerTrace):
    __slots__ = ("_asked_ns", "_context", "_key", "_reason", "_send", "_span", "_tracer")

    def __init__(self, tracer: Tracer, key: CacheKey, reason: str) -> None:
        self._tracer, self._key, self._reason = tracer, key, reason
        self._context, self._asked_ns = context.get_current(), time_ns()
        self._span: Span | None = None
        self._send: Span | None = None

    def begin(self) -> None:
        self._begun()

    def claimed(self, since_ns: int) -> None:
        self._child("claim", SpanKind.CLIENT, step_attributes("claim"), since_ns).end()

    def sending(self, system: str, queue: str) -> Mapping[str, str]:
        attributes = messaging_attributes(system, queue, "send") | key_attributes(self._key)
        self._send = self._child(f"send {queue}", SpanKind.PRODUCER, attributes)
        carrier: dict[str, str] = {}
        PROPAGATOR.inject(carrier, trace.set_span_in_context(self._send, self._context))
        return carrier

    def end(self, outcome: str, why: str) -> None:
        span = self._begun()
        span.set_attribute("refresher.outcome", outcome)
        if why:
            span.set_attribute("refresher.why", why)
        if outcome == "failed":
            failed(span, why)
        if self._send is not None:
            if why:
                failed(self._send, why)
            self._send.end()
        span.end()

    def _begun(self) -> Span:
        # At the decision, for the wait in the backlog is part of it. Only now: one that a newer trigger of the same key
        # has replaced there leaves none.
        if self._span is None:
            self._span = self._tracer.start_span(
                f"refresh {self._key.query}",
                context=self._context,
                attributes=key_attributes(self._key) | {"refresher.reason": str(self._reason)},
                start_time=self._asked_ns,
            )
        return self._span

    def _child(
        self, name: str, kind: SpanKind, attributes: Mapping[str, str | int], since_ns: int | None = None
    ) -> Span:
        within = trace.set_span_in_context(self._begun(), self._context)
        return self._tracer.start_span(name, context=within, kind=kind, attributes=attributes, start_time=since_ns)


def failed(span: Span, kind: str) -> None:
    """Mark a span as failed, by the kind of its error: the error's own text may show a param's value."""
    span.set_status(Status(StatusCode.ERROR))
    span.set_attribute("error.type", kind)


def key_attributes(key: CacheKey) -> dict[str, str | int]:
    """Return what says which key it is: as in logs, its params by their digest alone."""
    return {"refresher.query": key.query, "refresher.version": key.version, "refresher.key": key.short}


def step_attributes(step: str) -> dict[str, str]:
    """Return what says that Redis runs a step of a lease record."""
    return {"db.system.name": "redis", "db.operation.name": "EVALSHA", "db.stored_procedure.name": step}


def messaging_attributes(system: str, queue: str, operation: str) -> dict[str, str | int]:
    """Return what says that a message is sent or processed: those are the two operations."""
    return {
        "messaging.system": system,
        "messaging.destination.name": queue,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }


SCOPE: Final = "refresher"
# A histogram takes a value at a time, some microseconds each, of which each hit has two or three.
MAX_RECORDED: Final = 1_024
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
        self._notes = HitBatcher(self._count_hits)
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
        every = 1 if self._recorded < MAX_RECORDED else ONE_IN
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
