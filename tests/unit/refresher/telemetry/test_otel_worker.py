"""A worker's events as OpenTelemetry metrics, and its spans around fake components."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import neo4j
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry

from api_client.errors import CacheUnavailable
from api_client.protocol import messages
from api_client.protocol.lease import Call
from api_client.protocol.messages import RefreshItem
from api_client.transport.scripts import Until
from refresher.errors import LoadFailed
from refresher.flow.outcome import Outcome, OutcomeKind
from refresher.flow.ports import WorkerEvents
from refresher.queries import Loaded, Query, Registry, query
from refresher.settings import WorkerSettings
from refresher.telemetry.metrics import MeteredWorkerEvents
from refresher.telemetry.otel import OTelWorkerEvents
from refresher.telemetry.otel_spans import texts_of
from refresher.telemetry.prometheus import PrometheusWorkerEvents
from tests.support.driver_values import server_error
from tests.support.event_samples import WORKER_EVENTS
from tests.support.span_recorder import SpanRecorder, recorded_metrics, tree_of
from tests.unit.api_client.observe.test_otel import in_registry

TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
ITEM = RefreshItem(query="q", params='{"n":"c4nary"}', trace=TRACE)
REQUEST = SimpleNamespace(id="id", delivery_info={"routing_key": "cache.refresh"})
SETTINGS = WorkerSettings(neo4j_uri="neo4j://graph.example:7688", neo4j_database="people")
COMMITTED = Outcome(OutcomeKind.COMMITTED, "q", why="stale")


@pytest.fixture
def memory() -> SpanRecorder:
    return SpanRecorder()


@pytest.fixture
def events(memory: SpanRecorder) -> OTelWorkerEvents:
    return OTelWorkerEvents(tracer_provider=memory.provider)


def some_query(loader: Callable[..., Any] = lambda tx, n: n, degree: str | None = None) -> Query:
    registry = Registry()
    query("q", ttl=300, grace=60, degree=degree, into=registry)(loader)
    (found,) = registry
    return found


class Parts:
    """Lease steps, an origin and a transaction whose outcomes a test scripts."""

    def __init__(self, *ends: Any) -> None:
        self.ends = list(ends)

    def run(self, *_: Any, **__: Any) -> Any:
        end = self.ends.pop(0) if self.ends else None
        if isinstance(end, Exception):
            raise end
        return end

    def run_each(self, calls: Sequence[Call[Any]], *, until: Until = all) -> list[Any]:
        return [self.run(call) for call in calls]

    def load(self, *_: Any) -> list[Loaded]:
        return cast("list[Loaded]", self.run())


def test_the_cases_cover_every_event_of_a_worker() -> None:
    names = {name for name, method in vars(WorkerEvents).items() if callable(method)}
    assert names == set(WORKER_EVENTS)
    assert names <= set(vars(MeteredWorkerEvents))


@pytest.mark.parametrize("name", sorted(WORKER_EVENTS))
def test_each_worker_event_records_the_same_samples_as_for_prometheus(name: str) -> None:
    reader, registry = InMemoryMetricReader(), CollectorRegistry()
    for to in (OTelWorkerEvents(meter_provider=MeterProvider([reader])), PrometheusWorkerEvents(registry)):
        WORKER_EVENTS[name](to)
    assert recorded_metrics(reader)
    assert recorded_metrics(reader) == in_registry(registry)


def test_an_item_s_span_continues_the_trace_of_its_message(memory: SpanRecorder, events: OTelWorkerEvents) -> None:
    with events.spans.processing([ITEM], REQUEST, SETTINGS) as record_outcomes:
        record_outcomes([COMMITTED])
    (span,) = memory.spans
    assert (span.kind, span.name, span.failed) == ("CONSUMER", "process cache.refresh", False)
    assert TRACE["traceparent"] == f"00-{span.trace}-{span.parent}-01"
    assert (span["refresher.outcome"], span["refresher.why"]) == ("committed", None)
    assert (span["refresher.query"], span["messaging.message.id"]) == ("q", "id")
    assert "c4nary" not in str(span)


def test_an_invalid_item_without_a_trace_begins_its_own_and_its_span_shows_no_content(
    memory: SpanRecorder, events: OTelWorkerEvents
) -> None:
    with events.spans.processing([RefreshItem(query="c4nary !", params="c4nary")], REQUEST, SETTINGS):
        pass
    (span,) = memory.spans
    assert not span.parent
    assert "c4nary" not in str(span)


@pytest.mark.parametrize("kind", list(OutcomeKind))
def test_spans_of_abandoned_and_retried_refreshes_are_failed(
    memory: SpanRecorder, events: OTelWorkerEvents, kind: OutcomeKind
) -> None:
    with events.spans.processing([ITEM], REQUEST, SETTINGS) as record_outcomes:
        record_outcomes([Outcome(kind, "q", why="deadlock")])
    (span,) = memory.spans
    is_failed = kind in {OutcomeKind.FAILED, OutcomeKind.RETRY}
    assert span.failed == is_failed
    assert span["error.type"] == ("deadlock" if is_failed else None)
    is_stored = kind.value.startswith("committed") or kind is OutcomeKind.UNCHANGED
    assert span["refresher.why"] == (None if is_stored else "deadlock")


def test_steps_and_attempts_are_child_spans_and_attempts_are_numbered_on(
    memory: SpanRecorder, events: OTelWorkerEvents
) -> None:
    records = events.spans.lease_steps(Parts())
    failure = LoadFailed("deadlock", "c4nary", is_transient=True)
    origin = events.spans.origin(Parts(failure, [Loaded(1, degree=7)]))
    again = msgspec.structs.replace(ITEM, attempt=2)
    with events.spans.processing([again], REQUEST, SETTINGS) as record_outcomes:
        records.run(Call("acquire", (), (), int))
        with pytest.raises(LoadFailed):
            origin.load(some_query(degree="D"), [{}], [None], (), 1.0)
        origin.load(some_query(degree="D"), [{}], [None], (), 1.0)
        records.run(Call("commit", (), (), int))
        record_outcomes([COMMITTED])
    assert tree_of(memory.spans, "refresher.attempt", "refresher.degree", "error.type") == [
        "process cache.refresh CONSUMER refresher.attempt=2",
        "  acquire CLIENT",
        "  load q INTERNAL refresher.attempt=2 error.type=deadlock",
        "  load q INTERNAL refresher.attempt=3 refresher.degree=7",
        "  commit CLIENT",
    ]
    assert not any(any(span.texts) or "c4nary" in str(span) for span in memory.spans)


def test_an_unavailable_cache_fails_the_spans_of_its_step_and_message(
    memory: SpanRecorder, events: OTelWorkerEvents
) -> None:
    records = events.spans.lease_steps(Parts(CacheUnavailable("gone")))
    with pytest.raises(CacheUnavailable), events.spans.processing([ITEM], REQUEST, SETTINGS):
        records.run(Call("acquire", (), (), int))
    assert [(span.name, span["error.type"]) for span in memory.spans] == [
        ("acquire", "CacheUnavailable"),
        ("process cache.refresh", "CacheUnavailable"),
    ]


IN_MODULE = "MATCH (n) RETURN n"


def run_three(tx: Any, n: str) -> None:
    tx.run("RETURN $n", n=n)
    tx.run(IN_MODULE)
    tx.run(f"RETURN '{n}'")


def test_a_query_s_text_is_shown_as_it_stands_in_code_or_not_at_all(
    memory: SpanRecorder, events: OTelWorkerEvents
) -> None:
    loaded = some_query(run_three, degree="RETURN 1")
    tx = events.spans.transaction(cast("Any", Parts()), loaded, SETTINGS)
    run_three(tx, "c4nary")
    tx.run("RETURN 1")
    assert [(span.name, span["db.query.text"]) for span in memory.spans] == [
        ("query q", "RETURN $n"),
        ("query q", IN_MODULE),
        ("query q", None),
        ("degree q", "RETURN 1"),
    ]
    for span in memory.spans:
        assert span.kind == "CLIENT"
        assert span["db.query.summary"] == span.name
        assert (span["db.system.name"], span["db.namespace"]) == ("neo4j", "people")
        assert (span["server.address"], span["server.port"]) == ("graph.example", 7688)
    assert "c4nary" not in str(memory.spans)


def test_an_error_of_the_graph_is_recorded_by_its_code_without_its_text(
    memory: SpanRecorder, events: OTelWorkerEvents
) -> None:
    error = server_error("ClientError.Statement.SyntaxError", "c4nary")
    tx = events.spans.transaction(cast("Any", Parts(error)), some_query(), SETTINGS)
    with pytest.raises(neo4j.exceptions.Neo4jError):
        tx.run("RETRUN")
    (span,) = memory.spans
    assert span.failed
    assert span["db.response.status_code"] == "Neo.ClientError.Statement.SyntaxError"
    assert span["error.type"] == type(error).__name__
    assert "c4nary" not in str(span)


def test_a_query_s_span_ends_with_its_last_row_or_else_with_its_load(
    memory: SpanRecorder, events: OTelWorkerEvents
) -> None:
    calls: list[str] = []
    results = [SimpleNamespace(_on_closed=lambda: calls.append("driver"), closed=lambda: False) for _ in range(2)]
    tx = events.spans.transaction(cast("Any", Parts(*results)), some_query(), SETTINGS)

    class Origin(Parts):
        def load(self, *_: Any) -> Loaded:
            tx.run("A")
            assert memory.spans == []
            results[0]._on_closed()
            assert calls == ["driver"]
            assert [span.name for span in memory.spans] == ["query q"]
            tx.run("B")
            raise LoadFailed("timeout", "", is_transient=True)

    with events.spans.processing([ITEM], REQUEST, SETTINGS), pytest.raises(LoadFailed):
        events.spans.origin(Origin()).load(some_query(), [{}], [None], (), 1.0)
    assert [(span.name, span["error.type"]) for span in memory.spans] == [
        ("query q", None), ("query q", "timeout"), ("load q", "timeout"), ("process cache.refresh", None),
    ]  # fmt: skip


def test_the_driver_s_results_still_call_a_hook_when_they_are_closed() -> None:
    assert "_on_closed" in neo4j.Result.__init__.__code__.co_names


def test_a_loader_that_is_not_a_function_has_no_query_texts() -> None:
    class Loader:
        def __call__(self, tx: Any) -> str:
            return "RETURN 1"

    assert texts_of(Loader()) == frozenset()


@pytest.mark.parametrize(
    "trace",
    [
        None, 5, [], "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", {"traceparent": 1},
        {"traceparent": "x" * 55}, {"traceparent": TRACE["traceparent"] + "\n"}, {"other": "y"},
        {"tracestate": "s" * 513}, {"tracestate": "ä"},
    ],
    ids=str,
)  # fmt: skip
def test_an_invalid_trace_is_dropped_and_its_message_is_kept(trace: object) -> None:
    raw = msgspec.to_builtins(ITEM)
    (item,) = messages.decode({"v": 1, "items": [raw | {"trace": trace}]})
    assert item == msgspec.structs.replace(ITEM, trace={})


def test_a_trace_survives_a_message_unchanged() -> None:
    item = msgspec.structs.replace(ITEM, trace={**TRACE, "tracestate": "a=b,c=d"})
    assert messages.decode(messages.encode([item])) == [item]
    assert "trace" not in messages.encode([RefreshItem(query="q")])["items"][0]
