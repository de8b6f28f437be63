"""OpenTelemetry back end of metrics, and the spans of a reader. ``pip install 'refresher[otel]'``.

It needs OpenTelemetry's API alone: the application chooses the SDK, and where that sends to.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import time_ns
from typing import Final

from opentelemetry import context, metrics, trace
from opentelemetry.metrics import Counter, Histogram, Meter, UpDownCounter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from api_client._version import __version__
from api_client.errors import RefreshFailed
from api_client.observe.metrics import READER_METRICS, Kind, MeteredEvents, Metric, Record
from api_client.observe.tracing import ReaderSpans, TriggerTrace
from api_client.protocol.keys import CacheKey

SCOPE: Final = "refresher"
# Between readers and workers, whatever the application propagates by. Its baggage is left out: a refresh is for all.
PROPAGATOR: Final = TraceContextTextMapPropagator()


class OTelReaderSpans(ReaderSpans):
    """The spans of a reader, made by ``tracer``."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def start_trigger(self, key: CacheKey, reason: str) -> TriggerTrace:
        """Keep the caller's context for the refresh that its read has just triggered."""
        return _OTelTriggerTrace(self._tracer, key, reason)

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


class _OTelTriggerTrace(TriggerTrace):
    __slots__ = ("_context", "_key", "_reason", "_send", "_span", "_tracer", "_triggered_ns")

    def __init__(self, tracer: Tracer, key: CacheKey, reason: str) -> None:
        self._tracer, self._key, self._reason = tracer, key, reason
        self._context, self._triggered_ns = context.get_current(), time_ns()
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
                start_time=self._triggered_ns,
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


class OTelBackend:
    """The metrics of a table as instruments of ``meter``."""

    def __init__(self, table: Mapping[str, Metric], meter: Meter) -> None:
        self._table = table
        self._instruments = {name: _made(metric, meter) for name, metric in table.items()}

    def bind(self, name: str, *labels: str) -> Record:
        """Return what records with one set of attributes."""
        instrument = self._instruments[name]
        record = instrument.record if isinstance(instrument, Histogram) else instrument.add
        return functools.partial(record, attributes=dict(zip(self._table[name].labels, labels, strict=True)))


def _made(metric: Metric, meter: Meter) -> Counter | Histogram | UpDownCounter:
    name, unit, help_ = metric.name, metric.unit, metric.help
    if metric.kind is Kind.HISTOGRAM:
        return meter.create_histogram(name, unit, help_, explicit_bucket_boundaries_advisory=metric.buckets)
    if metric.kind is Kind.UP_DOWN:
        return meter.create_up_down_counter(name, unit, help_)
    return meter.create_counter(f"{name}_total", unit, help_)


class OTelEvents(MeteredEvents):
    """Counts a reader's events by OpenTelemetry, and traces its refreshes and waits.

    One object serves all clients of a process. The metrics are those of `PrometheusEvents`, by the same names, with an
    attribute ``query``.

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
        super().__init__(OTelBackend(READER_METRICS, metrics.get_meter(SCOPE, __version__, meter_provider)))
        self.spans: ReaderSpans = OTelReaderSpans(trace.get_tracer(SCOPE, __version__, tracer_provider))


@functools.cache
def default_events() -> OTelEvents:
    """Return the events that use the application's own providers, for all clients of the process."""
    return OTelEvents()
