"""A reader's events as OpenTelemetry metrics: the same numbers as in a registry of prometheus_client."""

from __future__ import annotations

import sys

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry

from api_client import ConfigurationError, ReaderSettings
from api_client.observe.events import ReaderEvents
from api_client.observe.otel import OTelEvents, default_events
from api_client.observe.prometheus import PrometheusEvents
from api_client.observe.setup import build_events
from tests.support.event_samples import READER_EVENTS
from tests.support.span_recorder import SpanRecorder, recorded_metrics


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
    assert {name for name, method in vars(ReaderEvents).items() if callable(method)} == set(READER_EVENTS)


@pytest.mark.parametrize("name", sorted(READER_EVENTS))
def test_each_reader_event_records_the_same_samples_as_for_prometheus(
    reader: InMemoryMetricReader, events: OTelEvents, name: str
) -> None:
    registry = CollectorRegistry()
    for to in (events, PrometheusEvents(registry)):
        READER_EVENTS[name](to)
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
