"""OpenTelemetry spans of a worker, without params' values or errors' texts.

::

    (send cache.refresh, the reader's, or none)
     └─ process cache.refresh         CONSUMER   one item of a message, with its outcome; the others link to it
         ├─ acquire                   CLIENT     in Redis
         ├─ load friends_of           INTERNAL   one for each attempt
         │   ├─ query friends_of      CLIENT     until the last of its rows is there
         │   └─ degree friends_of     CLIENT
         └─ commit                    CLIENT     in Redis; retry or fail, where the load has failed
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from types import CodeType
from typing import Any, Final, LiteralString, TypeVar
from urllib.parse import urlsplit

import neo4j
from neo4j.exceptions import Neo4jError
from opentelemetry import context
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Tracer

from api_client.config.broker import queue_name_of
from api_client.config.broker_url import system_of
from api_client.errors import CacheUnavailable, InvalidQuery
from api_client.observe.otel_spans import (
    PROPAGATOR,
    failed,
    key_attributes,
    messaging_attributes,
    step_attributes,
    type_name,
    within,
)
from api_client.protocol.lease import Call
from api_client.protocol.messages import RefreshItem
from api_client.transport.scripts import LeaseStepRunner, Until
from refresher.errors import LoadFailed
from refresher.flow.outcome import Outcome, OutcomeKind
from refresher.flow.ports import Origin, RecordOutcomes, RunsQueries, WorkerSpans
from refresher.queries import Loaded, Loader, Query
from refresher.results import Previous
from refresher.settings import WorkerSettings

T = TypeVar("T")

_COMMITTED: Final = frozenset({OutcomeKind.COMMITTED, OutcomeKind.UNCHANGED, OutcomeKind.COMMITTED_AS_STALE})
_FAILED: Final = frozenset({OutcomeKind.FAILED, OutcomeKind.RETRY})


@dataclass(slots=True)
class _Processing:
    """The item of this context: the numbers of its attempts, and the unfinished queries of its load."""

    attempts: Iterator[int]
    open_queries: list[Span] = field(default_factory=list)


# A load's own thread, if it has one, gets a copy of the context.
_processing: Final[ContextVar[_Processing | None]] = ContextVar("refresher_processing", default=None)


class OTelWorkerSpans(WorkerSpans):
    """The spans of a worker, made by ``tracer``."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    @contextmanager
    def processing(
        self, items: Sequence[RefreshItem], request: Any, settings: WorkerSettings
    ) -> Iterator[RecordOutcomes]:
        """Trace the handling of items that are loaded together; the yielded function takes their outcomes.

        A load belongs to a single trace, that of the first item, to which the others' spans link.
        """
        delivery = getattr(request, "delivery_info", None) or {}
        queue = queue_name_of(settings.namespace, settings.broker_url, str(delivery.get("routing_key")))
        common: dict[str, str | int] = {
            **messaging_attributes(system_of(settings.broker_url), queue, "process"),
            "messaging.message.id": str(getattr(request, "id", "")),
        }
        if len(items) > 1:
            common["messaging.batch.message_count"] = len(items)
        outside, first, *_ = context.get_current(), *items
        span = self._start(first, queue, outside, common | _item_attributes(first, settings))
        links = [Link(span.get_span_context())]
        others = [
            self._start(item, queue, outside, common | _item_attributes(item, settings), links) for item in items[1:]
        ]
        token = _processing.set(_Processing(count(first.attempt)))
        try:
            with ExitStack() as open_spans:
                for other in others:
                    open_spans.enter_context(within(other, _kind_of))
                open_spans.enter_context(within(span, _kind_of))
                yield functools.partial(_record_outcomes, [span, *others])
        finally:
            _processing.reset(token)

    def _start(
        self,
        item: RefreshItem,
        queue: str,
        outside: Context,
        attributes: dict[str, str | int],
        links: Sequence[Link] = (),
    ) -> Span:
        trace = PROPAGATOR.extract(item.trace or {}, outside)
        return self._tracer.start_span(
            f"process {queue}", context=trace, kind=SpanKind.CONSUMER, attributes=attributes, links=links
        )

    def lease_steps(self, steps: LeaseStepRunner) -> LeaseStepRunner:
        """Return ``steps`` with a span around each step."""
        return _TracedLeaseSteps(self._tracer, steps)

    def origin(self, origin: Origin) -> Origin:
        """Return ``origin`` with a span around each load."""
        return _TracedOrigin(self._tracer, origin)

    def transaction(self, tx: RunsQueries, query: Query, settings: WorkerSettings) -> RunsQueries:
        """Return ``tx`` with a span around each query that it runs."""
        return _TracedTransaction(self._tracer, tx, query, settings)


def _kind_of(error: BaseException) -> str:
    """Return the kind of a load's failure, or the type of another error."""
    return error.kind if isinstance(error, LoadFailed) else type_name(error)


def _item_attributes(item: RefreshItem, settings: WorkerSettings) -> dict[str, str | int]:
    about: dict[str, str | int] = {"refresher.reason": item.reason.value, "refresher.attempt": item.attempt}
    try:
        return about | key_attributes(item.key(settings.namespace))
    except InvalidQuery:
        # Its fields may hold anything.
        return about


def _record_outcomes(spans: Sequence[Span], outcomes: Sequence[Outcome]) -> None:
    for span, outcome in zip(spans, outcomes, strict=True):
        span.set_attribute("refresher.outcome", outcome.kind.value)
        if outcome.why and outcome.kind not in _COMMITTED:  # for a commit, ``why`` is the reason for the refresh
            span.set_attribute("refresher.why", outcome.why)
        if outcome.kind in _FAILED:
            failed(span, outcome.why)


class _TracedLeaseSteps:
    def __init__(self, tracer: Tracer, steps: LeaseStepRunner) -> None:
        self._tracer, self._steps = tracer, steps

    def run(self, call: Call[T], /) -> T:
        """Run one step."""
        span = self._tracer.start_span(call.script, kind=SpanKind.CLIENT, attributes=step_attributes(call.script))
        with within(span, _kind_of):
            return self._steps.run(call)

    def run_each(self, calls: Sequence[Call[T]], /, *, until: Until = all) -> Sequence[T | CacheUnavailable]:
        """Run steps in one round trip, all of the first one's kind, perhaps followed by one of another kind."""
        if not calls:
            return []
        script = calls[0].script
        span = self._tracer.start_span(script, kind=SpanKind.CLIENT, attributes=step_attributes(script))
        with within(span, _kind_of):
            if (size := sum(call.script == script for call in calls)) > 1:
                span.set_attribute("db.operation.batch.size", size)
            results = self._steps.run_each(calls, until=until)
            for error in (result for result in results if isinstance(result, CacheUnavailable)):
                failed(span, _kind_of(error))
                break
            return results


class _TracedOrigin:
    def __init__(self, tracer: Tracer, origin: Origin) -> None:
        self._tracer, self._origin = tracer, origin

    def load(
        self,
        query: Query,
        calls: Sequence[Mapping[str, Any]],
        previous: Sequence[Previous | None],
        bookmarks: Sequence[str],
        timeout_seconds: float,
    ) -> Sequence[Loaded]:
        """Load values."""
        item = _processing.get() or _Processing(count(1))
        span = self._tracer.start_span(
            f"load {query.name}", attributes={"refresher.query": query.name, "refresher.attempt": next(item.attempts)}
        )
        with within(span, _kind_of):
            try:
                loaded = self._origin.load(query, calls, previous, bookmarks, timeout_seconds)
            except BaseException as error:
                _end_all(item.open_queries, _kind_of(error))
                raise
            _end_all(item.open_queries)
            if query.degree_cypher is not None and len(loaded) == 1:
                span.set_attribute("refresher.degree", loaded[0].degree)
            return loaded


def _end_all(queries: list[Span], failure: str = "") -> None:
    """End the spans of queries whose last row was not read."""
    while queries:
        span = queries.pop()
        if failure and span.is_recording():
            failed(span, failure)
        if span.is_recording():
            span.end()


class _TracedTransaction:
    def __init__(self, tracer: Tracer, tx: RunsQueries, query: Query, settings: WorkerSettings) -> None:
        self._tracer, self._tx, self._query = tracer, tx, query
        self._about = _server_attributes(settings.neo4j_uri, settings.neo4j_database)

    def run(self, query: LiteralString, parameters: dict[str, Any] | None = None, **more: Any) -> neo4j.Result:
        """Run a query, as `ReadTransaction.run` does."""
        span = self._begin(query)
        try:
            result: neo4j.Result = self._tx.run(query, parameters, **more)
        except BaseException as error:
            if isinstance(error, Neo4jError) and error.code:
                span.set_attribute("db.response.status_code", error.code)
            failed(span, type_name(error))
            span.end()
            raise
        _end_with(result, span)
        return result

    def _begin(self, text: str) -> Span:
        role = "degree" if text == self._query.degree_cypher else "query"
        name = f"{role} {self._query.name}"
        shown = {"db.query.text": text} if role == "degree" or text in texts_of(self._query.loader) else {}
        span = self._tracer.start_span(
            name, kind=SpanKind.CLIENT, attributes={**self._about, "db.query.summary": name, **shown}
        )
        item = _processing.get()
        if item is not None:
            item.open_queries.append(span)
        return span


def _end_with(result: neo4j.Result, span: Span) -> None:
    """End the span at the last row of the result, since most of a query's time may go into its rows."""
    closed: Callable[[], Any] | None = getattr(result, "_on_closed", None)  # the driver has no public way
    if closed is None or result.closed():
        span.end()
        return

    def end() -> Any:
        span.end()
        return closed()

    result._on_closed = end  # noqa: SLF001 - as above


@functools.lru_cache(maxsize=16)
def _server_attributes(uri: str, database: str) -> dict[str, str | int]:
    server = urlsplit(uri)
    about: dict[str, str | int] = {"db.system.name": "neo4j"}
    if database:
        about["db.namespace"] = database
    if server.hostname:
        about["server.address"] = server.hostname
        about["server.port"] = server.port or 7687
    return about


@functools.lru_cache(maxsize=1024)
def texts_of(loader: Loader) -> frozenset[str]:
    """Return the texts in a loader's code and in its module.

    Any other text of a query was composed at run time and may contain a param's value, so no span shows it.
    """
    function = inspect.unwrap(loader)
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return frozenset()
    module = (value for value in function.__globals__.values() if isinstance(value, str))
    return frozenset([*_texts_in(code), *module])


def _texts_in(code: CodeType) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, CodeType):
            yield from _texts_in(constant)
