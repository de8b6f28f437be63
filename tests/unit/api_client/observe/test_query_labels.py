"""The label ``query`` in one process: however many names come, its values are bounded, for either back end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry

from api_client.observe.events import ReadFailure
from api_client.observe.metrics import MAX_UNPROVEN_QUERIES, OTHER_QUERIES, MeteredEvents
from api_client.observe.otel import OTelEvents
from api_client.observe.prometheus import PrometheusEvents
from refresher.telemetry.otel import OTelWorkerEvents
from refresher.telemetry.prometheus import PrometheusWorkerEvents
from tests.support.span_recorder import recorded_metrics

MANY = 10 * MAX_UNPROVEN_QUERIES
Counted: TypeAlias = Callable[[str], dict[str, float]]


def counted_by(registry: CollectorRegistry) -> Counted:
    def counted(name: str) -> dict[str, float]:
        samples = (sample for metric in registry.collect() for sample in metric.samples if sample.name == name)
        return {sample.labels["query"]: sample.value for sample in samples if sample.value}

    return counted


def recorded_by(reader: InMemoryMetricReader) -> Counted:
    def counted(name: str) -> dict[str, float]:
        found = recorded_metrics(reader).items()
        labels = ((key, dict(label.split("=", 1) for label in key[1:]), value) for key, value in found)
        return {by_name["query"]: value for key, by_name, value in labels if key[0] == name}

    return counted


@pytest.fixture(params=["prometheus", "otel"])
def reader(request: pytest.FixtureRequest) -> tuple[MeteredEvents, Counted]:
    if request.param == "prometheus":
        registry = CollectorRegistry()
        return PrometheusEvents(registry), counted_by(registry)
    memory = InMemoryMetricReader()
    return OTelEvents(meter_provider=MeterProvider([memory])), recorded_by(memory)


def hit(events: MeteredEvents, query: str) -> None:
    events.hit(query, age_seconds=1.0, ttl_remaining_seconds=1.0, triggered=False)


def test_reads_of_any_number_of_unknown_names_make_bounded_series(reader: tuple[MeteredEvents, Counted]) -> None:
    events, counted = reader
    for number in range(MANY):
        events.miss(f"from_a_url_{number}")
        events.read_failed(f"from_a_url_{number}", why=ReadFailure.UNKNOWN_QUERY)
    for name in ("cache_miss_total", "cache_read_failed_total"):
        found = counted(name)
        assert len(found) == MAX_UNPROVEN_QUERIES + 1
        assert found[OTHER_QUERIES] == MANY - MAX_UNPROVEN_QUERIES


def test_a_query_that_has_an_entry_has_series_of_its_own_all_the_same(reader: tuple[MeteredEvents, Counted]) -> None:
    events, counted = reader
    for number in range(MANY):
        events.miss(f"from_a_url_{number}")
    hit(events, "friends_of")
    events.miss("friends_of")
    assert counted("cache_hit_total") == {"friends_of": 1.0}
    assert counted("cache_miss_total")["friends_of"] == 1.0


@pytest.mark.parametrize("backend", ["prometheus", "otel"])
def test_messages_with_unknown_names_leave_registered_queries_their_series(backend: str) -> None:
    registry, memory = CollectorRegistry(), InMemoryMetricReader()
    events = (
        PrometheusWorkerEvents(registry)
        if backend == "prometheus"
        else OTelWorkerEvents(meter_provider=MeterProvider([memory]))
    )
    counted = counted_by(registry) if backend == "prometheus" else recorded_by(memory)
    events.expect(["friends_of"])
    for number in range(MANY):
        events.failed(f"from_a_url_{number}", kind="unknown_query", attempts=1)
    events.failed("friends_of", kind="network", attempts=1)
    found = counted("xfetch_refresh_failed_total")
    assert len(found) <= MAX_UNPROVEN_QUERIES + 1
    assert found["friends_of"] == 1.0
