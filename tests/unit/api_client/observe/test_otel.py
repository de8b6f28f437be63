"""A reader's events as OpenTelemetry metrics: the same numbers as in a registry of prometheus_client."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry

from api_client import ConfigurationError, ReaderSettings, ReadFailure, RefreshReason
from api_client.observe.events import ReaderEvents
from api_client.observe.otel import OTelEvents, default_events
from api_client.observe.prometheus import PrometheusEvents
from api_client.observe.setup import build_events
from tests.support.span_recorder import SpanRecorder, recorded_metrics

EMITTING: dict[str, Callable[[ReaderEvents], None]] = {
    "miss": lambda e: e.miss("q"),
    "unavailable": lambda e: e.unavailable("q"),
    "single_flight_hit": lambda e: e.single_flight_hit("q", waited_seconds=1.0),
    "refresh_deduplicated": lambda e: e.refresh_deduplicated("q", state="running"),
    "refresh_republished": lambda e: e.refresh_republished("q"),
    "refresh_triggered": lambda e: e.refresh_triggered("q", reason=RefreshReason.EARLY),
    "refresh_dropped": lambda e: e.refresh_dropped("q", why="backlog"),
    "trigger_failed": lambda e: e.trigger_failed("q", why="OSError"),
    "read_failed": lambda e: e.read_failed("q", why=ReadFailure.UNKNOWN_QUERY),
    "unreadable_entry": lambda e: e.unreadable_entry("q", reason="digest"),
    "tags_invalidated": lambda e: e.tags_invalidated(hard=False, entries=3, seconds=0.02),
    "hit": lambda e: e.hit("q", age_seconds=7.5, ttl_remaining_seconds=-2.0, triggered=True),
}


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def events(reader: InMemoryMetricReader) -> OTelEvents:
    return OTelEvents(meter_provider=MeterProvider([reader]), tracer_provider=SpanRecorder().provider)


def in_registry(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    """Return the non-zero samples of a scrape, by name and labels; of a histogram, its count, sum and buckets."""
    return {
        (sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items()))): sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.value and not sample.name.endswith("_created")
    }


def test_the_cases_cover_every_event_of_a_reader() -> None:
    assert {name for name, method in vars(ReaderEvents).items() if callable(method)} == set(EMITTING)


@pytest.mark.parametrize("name", sorted(EMITTING))
def test_each_reader_event_records_the_same_samples_as_for_prometheus(
    reader: InMemoryMetricReader, events: OTelEvents, name: str
) -> None:
    registry = CollectorRegistry()
    for to in (events, PrometheusEvents(registry)):
        EMITTING[name](to)
    assert recorded_metrics(reader)
    assert recorded_metrics(reader) == in_registry(registry)


def test_hits_of_all_kinds_record_the_same_samples_as_for_prometheus(
    reader: InMemoryMetricReader, events: OTelEvents
) -> None:
    registry = CollectorRegistry()
    for to in (events, PrometheusEvents(registry)):
        for age, left, triggered in ((7.0, 20.0, False), (0.5, 15.0, True), (400.0, -100.0, True), (300.0, 0.0, False)):
            to.hit("q", age_seconds=age, ttl_remaining_seconds=left, triggered=triggered)
    assert recorded_metrics(reader) == in_registry(registry)


def test_with_cache_otel_all_clients_of_a_process_share_their_spans_with_or_without_metrics() -> None:
    for settings in (ReaderSettings(otel=True), ReaderSettings(otel=True, metrics=True)):
        assert build_events(None, settings).spans is default_events().spans


def test_without_opentelemetry_cache_otel_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "api_client.observe.otel", None)
    with pytest.raises(ConfigurationError, match=r"CACHE_OTEL=true.*opentelemetry-api.*refresher\[otel\]"):
        build_events(None, ReaderSettings(otel=True))
