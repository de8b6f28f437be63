"""OpenTelemetry spans of a reader, and the parts shared with a worker's spans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import time_ns
from typing import Final

from opentelemetry import context, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from api_client.errors import RefreshFailed
from api_client.observe.tracing import ReaderSpans, TriggerTrace
from api_client.protocol.keys import CacheKey

# For readers and workers, whatever the application uses. Its baggage is left out, since a refresh is for all.
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
        """Trace the wait for these keys' values as a span."""
        if len(keys) == 1:
            name, attributes = f"wait {keys[0].query}", key_attributes(keys[0])
        else:
            name, attributes = "wait", {"refresher.keys": len(keys)}
        span = self._tracer.start_span(name, attributes=attributes)
        with within(span):
            try:
                yield
            except RefreshFailed as error:
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
        self._started()

    def claimed(self, since_ns: int) -> None:
        self._child("claim", SpanKind.CLIENT, step_attributes("claim"), since_ns).end()

    def sending(self, system: str, queue: str) -> Mapping[str, str]:
        attributes = messaging_attributes(system, queue, "send") | key_attributes(self._key)
        self._send = self._child(f"send {queue}", SpanKind.PRODUCER, attributes)
        carrier: dict[str, str] = {}
        PROPAGATOR.inject(carrier, trace.set_span_in_context(self._send, self._context))
        return carrier

    def end(self, outcome: str, why: str) -> None:
        span = self._started()
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

    def _started(self) -> Span:
        # It starts at the decision, since the wait in the backlog is part of it, but is made only now, so that a
        # trigger that was replaced in the backlog leaves no span.
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
        within = trace.set_span_in_context(self._started(), self._context)
        return self._tracer.start_span(name, context=within, kind=kind, attributes=attributes, start_time=since_ns)


def type_name(error: BaseException) -> str:
    """Return the name of an error's type."""
    return type(error).__name__


@contextmanager
def within(span: Span, kind_of: Callable[[BaseException], str] = type_name) -> Iterator[None]:
    """Make a span the current one until it ends; an error marks it as failed."""
    with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield
        except BaseException as error:
            failed(span, kind_of(error))
            raise


def failed(span: Span, kind: str) -> None:
    """Mark a span as failed with the kind of its error, since the error's text may show a param's value."""
    span.set_status(Status(StatusCode.ERROR))
    span.set_attribute("error.type", kind)


def key_attributes(key: CacheKey) -> dict[str, str | int]:
    """Return the attributes of a key, with the digest in place of the params, as in logs."""
    return {"refresher.query": key.query, "refresher.version": key.version, "refresher.key": key.short}


def step_attributes(step: str) -> dict[str, str]:
    """Return the attributes of a lease step, which Redis runs."""
    return {"db.system.name": "redis", "db.operation.name": "EVALSHA", "db.stored_procedure.name": step}


def messaging_attributes(system: str, queue: str, operation: str) -> dict[str, str | int]:
    """Return the attributes of a message for an ``operation``: send or process."""
    return {
        "messaging.system": system,
        "messaging.destination.name": queue,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }
