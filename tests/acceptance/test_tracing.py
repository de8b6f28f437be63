"""One trace from the triggering read to the commit: over real processes, a real broker, the embedded graph and OTLP."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psutil
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from api_client import RefreshFailed
from api_client.observe.otel import OTelEvents
from refresher.embedded import GuardedProcess
from refresher.embedded.ports import free_port
from tests.acceptance.conftest import System
from tests.acceptance.test_worker_metrics import scraped
from tests.servers.rabbitmq_server import RabbitMqServer
from tests.support.otlp_collector import Collector, collecting
from tests.support.span_recorder import RecordedSpan, SpanRecorder, lines_of, path_to, tree_of
from tests.support.traced_queries import IN_CODE
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

pytestmark = pytest.mark.usefixtures("published_once")

CANARY = "c4nary"
QUERIES = "tests.support.traced_queries,tests.support.scripted_queries"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture
def memory() -> SpanRecorder:
    return SpanRecorder()


@pytest.fixture
def events(memory: SpanRecorder) -> OTelEvents:
    return OTelEvents(tracer_provider=memory.provider, meter_provider=MeterProvider([InMemoryMetricReader()]))


def start_worker(system: System, collector: Collector, *args: str, **changes: str) -> GuardedProcess:
    otel = {"CACHE_OTEL": "true", "OTEL_SERVICE_NAME": "refresher-worker", **collector.env}
    return system.start_worker(*args, REFRESHER_QUERIES=QUERIES, **(otel | changes))


def trace_of(memory: SpanRecorder, collector: Collector, read: Callable[[], object], end: str) -> Trace:
    """The trace that a read began, once the worker has reported its outcome ``end``."""
    memory.forget()
    with memory.tracer.start_as_current_span("GET /friends"):
        read()

    def whole() -> Trace | None:
        trace = Trace([*memory.spans, *collector.spans], end)
        return trace if trace.is_whole else None

    trace = eventually(whole, f"the trace ends in {end}")
    assert trace is not None
    assert {span.trace for span in memory.spans} == {trace.spans[0].trace}, "nothing is in another trace"
    return trace


class Trace:
    """The spans of the request's trace, and the path to the worker's last span.

    A message that was published again, since the first was late, and skipped is left out.
    """

    def __init__(self, spans: list[RecordedSpan], end: str) -> None:
        (request,) = [span for span in spans if span.name == "GET /friends"]
        self.spans = [span for span in spans if span.trace == request.trace]
        consumed = sorted((span for span in self.spans if span.kind == "CONSUMER"), key=lambda span: span.began_ns)
        self.attempts = [span for span in consumed if span["refresher.outcome"] != "skipped"]
        self.ends = [span for span in self.attempts if span["refresher.outcome"] == end]
        self.path = path_to(self.ends[0], self.spans) if self.ends else []

    @property
    def is_whole(self) -> bool:
        return bool(self.path) and not self.path[0].parent

    def lines(self, *shown: str) -> list[str]:
        """Each attempt, with what is under it."""
        return [line for attempt in self.attempts for line in lines_of(attempt, self.spans, *shown)]


LOADED = [
    "  acquire CLIENT",
    "  load friends_of INTERNAL refresher.attempt=1",
    "    query friends_of CLIENT",
    "    query friends_of CLIENT",
    "    degree friends_of CLIENT",
    "  commit CLIENT",
]


@pytest.mark.parametrize(("kind", "pool"), [("sync", "prefork"), ("async", "threads")])
def test_a_miss_and_an_invalidated_hit_are_each_one_trace_from_read_to_cypher(
    system: System, collector: Collector, memory: SpanRecorder, events: OTelEvents, pool: str, kind: str
) -> None:
    start_worker(system, collector, "-P", pool)
    reader = system.reader(kind, events)
    params = {"person": CANARY}

    trace = trace_of(memory, collector, lambda: reader.get("friends_of", params), "committed")
    assert [(span.name, span.kind) for span in trace.path] == [
        ("GET /friends", "INTERNAL"),
        ("wait friends_of", "INTERNAL"),
        ("refresh friends_of", "INTERNAL"),
        ("send cache.refresh-miss", "PRODUCER"),
        ("process cache.refresh-miss", "CONSUMER"),
    ]
    assert trace.lines("refresher.attempt") == ["process cache.refresh-miss CONSUMER refresher.attempt=1", *LOADED]
    queries = [span for span in trace.spans if span.name == "query friends_of"]
    assert [span["db.query.text"] for span in queries] == [IN_CODE, None], "a text made of a param's value is not shown"
    assert {span["db.system.name"] for span in queries} == {"neo4j"}
    assert {span["messaging.system"] for span in trace.path[3:]} == {"redis"}

    reader.invalidate("friends_of", params)
    trace = trace_of(memory, collector, lambda: reader.get("friends_of", params), "committed")
    assert [span.name for span in trace.path] == [
        "GET /friends", "refresh friends_of", "send cache.refresh", "process cache.refresh",
    ]  # fmt: skip
    assert "claim" in {span.name for span in trace.spans if span.parent == trace.path[1].id}
    assert {span["refresher.reason"] for span in (trace.path[1], trace.path[3])} == {"invalidated"}
    assert trace.path[1]["refresher.outcome"] == "published"
    assert trace.lines("refresher.attempt")[1:] == LOADED

    assert trace_of_nothing(memory, lambda: reader.get("friends_of", params)) == ["GET /friends INTERNAL"]
    assert CANARY.encode() not in collector.raw
    assert not any(CANARY in str(span) for span in memory.spans)


def test_over_rabbitmq_a_refresh_with_a_delayed_retry_is_one_trace(
    system: System, rabbitmq: RabbitMqServer, collector: Collector, memory: SpanRecorder, events: OTelEvents
) -> None:
    rabbitmq.forget_queues("cache")
    system.env["CACHE_BROKER_URL"] = rabbitmq.url
    start_worker(system, collector)
    client = system.client(events)
    params = {"person": CANARY}

    trace = trace_of(memory, collector, lambda: client.get("fails_at_first", params), "committed")
    queue = "cache.refresh-miss.quorum"
    assert [span.name for span in trace.path[-2:]] == [f"send {queue}", f"process {queue}"]
    assert {span["messaging.system"] for span in trace.path[-2:]} == {"rabbitmq"}
    assert [line for line in trace.lines("refresher.outcome") if line.startswith("process")] == [
        f"process {queue} CONSUMER refresher.outcome=retry", f"process {queue} CONSUMER refresher.outcome=committed",
    ]  # fmt: skip

    client.invalidate("fails_at_first", params)
    trace = trace_of(memory, collector, lambda: client.get("fails_at_first", params), "committed")
    assert trace.path[-1].name == "process cache.refresh.quorum"


def trace_of_nothing(memory: SpanRecorder, read: Callable[[], object]) -> list[str]:
    memory.forget()
    with memory.tracer.start_as_current_span("GET /friends"):
        read()
    return tree_of(memory.spans)


def test_retries_and_a_permanent_failure_are_traced_without_param_values(
    system: System, collector: Collector, memory: SpanRecorder, events: OTelEvents
) -> None:
    start_worker(system, collector)
    client = system.client(events)
    params = {"person": CANARY}

    trace = trace_of(memory, collector, lambda: client.get("fails_at_first", params), "committed")
    assert trace.lines("refresher.attempt", "refresher.outcome", "error.type") == [
        "process cache.refresh-miss CONSUMER refresher.attempt=1 refresher.outcome=retry error.type=transient",
        "  acquire CLIENT",
        "  load fails_at_first INTERNAL refresher.attempt=1 error.type=transient",
        "  retry CLIENT",
        "process cache.refresh-miss CONSUMER refresher.attempt=2 refresher.outcome=committed",
        "  acquire CLIENT",
        "  load fails_at_first INTERNAL refresher.attempt=2",
        "    query fails_at_first CLIENT",
        "  commit CLIENT",
    ]

    def fails() -> None:
        with pytest.raises(RefreshFailed):
            client.get("always_fails", params)

    trace = trace_of(memory, collector, fails, "failed")
    wait = trace.path[1]
    assert (wait.name, wait.failed, wait["error.type"]) == ("wait always_fails", True, "RefreshFailed")
    dead, acquired, load, queried, failed = trace.lines("refresher.why", "error.type")
    assert dead == "process cache.refresh-miss CONSUMER refresher.why=syntax error.type=syntax"
    assert [acquired, load] == ["  acquire CLIENT", "  load always_fails INTERNAL error.type=syntax"]
    assert queried.startswith("    query always_fails CLIENT error.type=")
    assert failed == "  fail CLIENT"
    assert all(span.failed for span in trace.spans if span["error.type"])

    assert CANARY.encode() not in collector.raw
    assert not any(any(span.texts) for span in [*collector.spans, *memory.spans])
    assert not any(CANARY in str(span) for span in memory.spans)


def test_a_replaced_pool_process_exports_its_pending_spans(
    system: System, collector: Collector, memory: SpanRecorder, events: OTelEvents
) -> None:
    start_worker(system, collector, "--max-tasks-per-child", "1", OTEL_BSP_SCHEDULE_DELAY="3600000")
    client = system.client(events)
    for person in ("a", "b", "c"):
        params = {"person": person}
        trace_of(memory, collector, lambda params=params: client.get("friends_of", params), "committed")  # type: ignore[misc]


def test_counts_of_a_prefork_main_process_are_in_prometheus_and_not_in_opentelemetry(
    system: System, collector: Collector
) -> None:
    port = free_port()
    worker = start_worker(
        system, collector, "-c", "1", OTEL_METRIC_EXPORT_INTERVAL="3600000", CACHE_METRICS_PORT=str(port)
    )
    system.broker.lpush("cache.refresh", "{}")  # an unrecognised message
    eventually(lambda: "rejected a message" in worker.log_file.read_text(), "it is rejected")
    client = system.client()
    held = {"key": "a", "hold": "gate"}
    client.refresh("long_lived", held)
    eventually(lambda: system.loads("a") == 1, "it runs")
    (child,) = psutil.Process(worker.pid).children()
    child.kill()
    lost = "xfetch_refresh_retried_total", "worker_lost", "long_lived"
    eventually(lambda: scraped(port).get(lost) == 1, "its run is ended")
    system.open_gate("gate", 2)
    eventually(lambda: client.get("long_lived", {"key": "a", "hold": "gate"}, default=None), "it is loaded after all")
    found = scraped(port)
    assert found[lost] == 1
    assert sum(value for (name, *_), value in found.items() if name == "refresher_messages_dropped_total") == 1

    worker.terminate(within_seconds=MAX_WAIT_SECONDS)
    assert collector.total("xfetch_refresh_completed_total") == 1, "the process of the pool has sent what it had"
    assert {one.name for one in collector.points}.isdisjoint(
        {"refresher_messages_dropped_total", "xfetch_refresh_retried_total"}
    )
    assert len(collector.instances) == 1


@pytest.mark.parametrize("pool", ["prefork", "solo"])
def test_the_metrics_of_all_processes_add_up_at_a_collector(system: System, collector: Collector, pool: str) -> None:
    start_worker(system, collector, "-P", pool, CACHE_XFETCH_RETRY_MAX="1")
    client = system.client()
    system.control.rpush("script:retried", "fail")
    for key in ("a", "b", "c", "retried"):
        client.get("long_lived", {"key": key})
    system.control.rpush("script:failing", "fail", "fail")
    with pytest.raises(RefreshFailed):
        client.get("long_lived", {"key": "failing"})

    counts = {
        "xfetch_refresh_failed_total": 1, "xfetch_refresh_completed_total": 4, "xfetch_refresh_retried_total": 2,
        "xfetch_refresh_duration_seconds": 4, "xfetch_refresh_lead_seconds": 4, "xfetch_active_refreshes": 0,
    }  # fmt: skip

    def counted() -> bool:
        """Each process exports at times of its own."""
        return {name: collector.total(name, query="long_lived") for name in counts} == counts

    eventually(counted, "all is counted, and no run is active any more")
    for name in ("xfetch_refresh_failed_total", "xfetch_refresh_retried_total"):
        assert collector.total(name, query="long_lived", kind="transient") == counts[name]
    eventually(lambda: {one.name for one in collector.points} >= GAUGES, "the gauges are exported")
    processes = 2 if pool == "prefork" else 1
    eventually(lambda: len(collector.instances) >= processes, "each process exports")
    assert len(collector.instances) == processes, "a prefork pool's main process exports nothing"
    assert {one.value for one in collector.points if one.name == "xfetch_query_ttl_seconds"} >= {3600.0}
    eventually(
        lambda: {one.value for one in collector.points if one.name == "xfetch_dead_letters"} >= {1.0}, "it is counted"
    )


GAUGES = {
    "xfetch_refresh_queue_size", "xfetch_dead_letters", "xfetch_quarantined_keys", "xfetch_query_ttl_seconds",
    "xfetch_query_grace_seconds",
}  # fmt: skip
