"""A reader's spans and counts: a trigger keeps the trace context of its call, whichever thread publishes it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
import redis
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry

from api_client import ReaderSettings, WaitTimeout
from api_client.config.broker import miss_queue, refresh_queue
from api_client.observe.otel import OTelEvents
from api_client.observe.prometheus import PrometheusEvents
from api_client.protocol import messages
from api_client.protocol.messages import RefreshItem
from refresher.embedded import RedisServer
from tests.integration.reader.conftest import NAMESPACE, NewKey
from tests.support.any_reader import KINDS, AnyReader, callers_waiting
from tests.support.span_recorder import RecordedSpan, SpanRecorder, lines_of, tree_of
from tests.support.waiting import MAX_WAIT_SECONDS, eventually


@pytest.fixture
def memory() -> SpanRecorder:
    return SpanRecorder()


@pytest.fixture
def traced(kind: str, stack: ExitStack, settings: dict[str, Any], memory: SpanRecorder) -> AnyReader:
    events = OTelEvents(tracer_provider=memory.provider, meter_provider=MeterProvider())
    reader = KINDS[kind](ReaderSettings(**settings), events)
    stack.callback(reader.close)
    return reader


@pytest.fixture
def sent_items(clean_redis: RedisServer) -> Callable[[str], list[RefreshItem]]:
    """The items of all messages in a queue."""

    def items(queue: str) -> list[RefreshItem]:
        with redis.Redis.from_url(clean_redis.url(1)) as broker:
            bodies = [json.loads(raw)["body"] for raw in broker.lrange(queue, 0, -1)]
        return [item for body in bodies for item in messages.decode(json.loads(base64.b64decode(body))[0][0])]

    return items


def within(memory: SpanRecorder, name: str, call: Callable[[], object]) -> None:
    with memory.tracer.start_as_current_span(name):
        call()


def named(memory: SpanRecorder, name: str) -> RecordedSpan:
    (found,) = [span for span in memory.spans if span.name == name]
    return found


def test_each_message_carries_the_trace_of_the_read_that_triggered_it(
    traced: AnyReader, new_key: NewKey, memory: SpanRecorder, sent_items: Callable[[str], list[RefreshItem]]
) -> None:
    for query in ("a", "b"):
        new_key(query).store_value("v", age_seconds=500, ttl_seconds=100)
        within(memory, f"GET {query}", lambda query=query: traced.get(query, {}))  # type: ignore[misc]
    assert traced.flush(MAX_WAIT_SECONDS)
    assert tree_of(memory.spans, "refresher.reason", "refresher.outcome") == [
        line
        for query in ("a", "b")
        for line in (
            f"GET {query} INTERNAL",
            f"  refresh {query} INTERNAL refresher.reason=stale refresher.outcome=published",
            "    claim CLIENT",
            "    send test.refresh PRODUCER",
        )
    ]
    sends = {span["refresher.query"]: span for span in memory.spans if span.kind == "PRODUCER"}
    for item in sent_items(refresh_queue(NAMESPACE)):
        send = sends[item.query]
        assert item.trace
        assert item.trace["traceparent"].startswith(f"00-{send.trace}-{send.id}-")


def test_hits_that_trigger_nothing_have_no_spans(traced: AnyReader, new_key: NewKey, memory: SpanRecorder) -> None:
    new_key("fresh").store_value("v", age_seconds=10, ttl_seconds=1000, beta=0.0)
    traced.get("fresh", {})
    traced.get_many([("fresh", {}), ("fresh", {})])
    assert traced.flush(MAX_WAIT_SECONDS)
    assert memory.spans == []


def test_each_sharer_of_a_wait_has_its_own_span_and_the_first_has_the_refresh(
    traced: AnyReader, new_key: NewKey, memory: SpanRecorder, pool: ThreadPoolExecutor
) -> None:
    key = new_key()

    def read(name: str) -> None:
        within(memory, name, lambda: traced.get("q", {}))

    first = pool.submit(read, "first")
    key.wait_for_claim()
    second = pool.submit(read, "second")
    eventually(lambda: callers_waiting(traced) == [2], "both wait")
    key.load("v")
    first.result(MAX_WAIT_SECONDS)
    second.result(MAX_WAIT_SECONDS)
    assert traced.flush(MAX_WAIT_SECONDS)
    names = {
        name: {span.name for span in memory.spans if span.trace == named(memory, name).trace}
        for name in ("first", "second")
    }
    assert names == {
        "first": {"first", "wait q", "refresh q", "send test.refresh-miss"},
        "second": {"second", "wait q"},
    }


def test_a_batch_has_one_wait_span_that_contains_the_refreshes_of_its_misses(
    traced: AnyReader, new_key: NewKey, memory: SpanRecorder, pool: ThreadPoolExecutor,
    sent_items: Callable[[str], list[RefreshItem]],
) -> None:  # fmt: skip
    new_key("stale").store_value("v", age_seconds=500, ttl_seconds=100)
    missing = [new_key("m1"), new_key("m2")]
    calls = [("stale", {}), ("m1", {}), ("m2", {})]
    reading = pool.submit(within, memory, "GET", lambda: traced.get_many(calls))
    for key in missing:
        key.load("v")
    reading.result(MAX_WAIT_SECONDS)
    assert traced.flush(MAX_WAIT_SECONDS)
    wait = named(memory, "wait")
    assert wait["refresher.keys"] == 2
    below = lines_of(wait, memory.spans)
    assert {line.strip() for line in below[1:]} == {
        "refresh m1 INTERNAL", "refresh m2 INTERNAL", "send test.refresh-miss PRODUCER",
    }  # fmt: skip
    assert named(memory, "refresh stale").parent == wait.parent == named(memory, "GET").id
    published = [*sent_items(refresh_queue(NAMESPACE)), *sent_items(miss_queue(NAMESPACE))]
    assert {item.query for item in published} == {"stale", "m1", "m2"}
    assert all(wait.trace in item.trace["traceparent"] for item in published if item.trace)
    assert all(item.trace for item in published)


def test_the_span_of_a_failed_wait_names_the_error(traced: AnyReader, memory: SpanRecorder) -> None:
    with pytest.raises(WaitTimeout):
        traced.get("q", {"name": "c4nary"}, timeout=0.05)
    wait = named(memory, "wait q")
    assert (wait.failed, wait["error.type"]) == (True, "WaitTimeout")
    assert not any(any(span.texts) or "c4nary" in str(span) for span in memory.spans)


def test_hits_are_counted_with_their_age_and_remaining_ttl(
    kind: str, stack: ExitStack, settings: dict[str, Any], new_key: NewKey
) -> None:
    registry = CollectorRegistry()
    reader = KINDS[kind](ReaderSettings(**settings), PrometheusEvents(registry))
    stack.callback(reader.close)
    new_key("fresh").store_value("v", age_seconds=10, ttl_seconds=1000, beta=0.0)
    new_key("stale").store_value("v", age_seconds=500, ttl_seconds=100)
    invalidated = new_key("invalidated")
    token = invalidated.store_value("v", age_seconds=10, ttl_seconds=1000, beta=0.0)
    invalidated.store_value("v", age_seconds=10, ttl_seconds=1000, beta=0.0, generation=token + 10**9)
    for query in ("fresh", "stale", "invalidated"):
        for _ in range(2):
            assert reader.get(query, {}) == "v"
    assert reader.flush(MAX_WAIT_SECONDS)

    def counted(name: str, query: str) -> float:
        return registry.get_sample_value(name, {"query": query}) or 0.0

    hits = {query: counted("cache_hit_total", query) for query in ("fresh", "stale", "invalidated")}
    assert hits == {"fresh": 2, "stale": 2, "invalidated": 2}
    assert [counted("cache_expired_served_total", query) for query in hits] == [0, 2, 2]
    assert [counted("xfetch_stale_served_total", query) for query in hits] == [0, 2, 2]
    assert 20 <= counted("cache_age_at_access_seconds_sum", "fresh") < 200
    assert 1800 < counted("cache_ttl_remaining_seconds_sum", "fresh") <= 1980
    assert 800 <= counted("cache_stale_seconds_sum", "stale") < 1000
    assert counted("cache_ttl_remaining_seconds_sum", "invalidated") == 0
    assert counted("cache_stale_seconds_sum", "invalidated") == 0
    triggered = {"query": "stale", "reason": "stale"}
    assert registry.get_sample_value("xfetch_refresh_triggered_total", triggered) == 1
