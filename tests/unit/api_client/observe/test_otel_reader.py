"""A reader's events as OpenTelemetry metrics: the same numbers as in a registry of prometheus_client."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry

from api_client import ConfigurationError, ReaderSettings, ReadFailure, RefreshReason
from api_client.client import _build_events
from api_client.observe.events import ReaderEvents, guarded, together
from api_client.observe.metrics import FOLD_AT
from api_client.observe.otel import MAX_RECORDED, ONE_IN, OTelEvents
from api_client.observe.prometheus import PrometheusEvents
from tests.support.metric_recorder import recorded_metrics
from tests.support.span_recorder import SpanRecorder

TELLING: dict[str, Callable[[ReaderEvents], None]] = {
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
    "hit": lambda e: e.hit("q", age_seconds=7.5, ttl_remaining_seconds=-2.0, triggered=True),
}


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def events(reader: InMemoryMetricReader) -> OTelEvents:
    return OTelEvents(meter_provider=MeterProvider([reader]), tracer_provider=SpanRecorder().provider)


def in_registry(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    """What a scrape finds that has been counted, by name and labels; of a histogram, its count, sum and buckets."""
    return {
        (sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items()))): sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.value and not sample.name.endswith("_created")
    }


def test_every_event_of_a_reader_is_told_here() -> None:
    names = {name for name, method in vars(ReaderEvents).items() if callable(method)}
    assert names == set(TELLING)
    assert names <= set(vars(OTelEvents))


@pytest.mark.parametrize("name", sorted(TELLING))
def test_each_event_counts_what_it_counts_for_prometheus(
    reader: InMemoryMetricReader, events: OTelEvents, name: str
) -> None:
    registry = CollectorRegistry()
    for to in (events, PrometheusEvents(registry)):
        TELLING[name](guarded(to, ReaderEvents))
    assert recorded_metrics(reader)
    assert recorded_metrics(reader) == in_registry(registry)


def test_noted_hits_are_those_of_prometheus_too(reader: InMemoryMetricReader, events: OTelEvents) -> None:
    registry = CollectorRegistry()
    both = together([events, PrometheusEvents(registry)], ReaderEvents)
    assert both.note_hit is not None
    for age, left, triggered in ((7.0, 20.0, False), (0.5, 15.0, True), (400.0, -100.0, True), (300.0, 0.0, False)):
        both.note_hit(("q", round(age * 1e6), round(left * 1e6), triggered))
    assert recorded_metrics(reader) == in_registry(registry)


def test_a_reader_notes_its_hits(events: OTelEvents) -> None:
    assert guarded(events, ReaderEvents).note_hit == events.note_hit


def test_where_hits_are_many_all_are_counted_and_some_is_in_the_histograms(
    reader: InMemoryMetricReader, events: OTelEvents
) -> None:
    count = 16 * MAX_RECORDED
    for _ in range(count):
        events.note_hit(("q", 1_000_000, 9_000_000, False))
    found = recorded_metrics(reader)
    assert found["cache_hit_total", "query=q"] == count
    assert found["cache_age_at_access_seconds_count", "query=q"] == MAX_RECORDED + (count - MAX_RECORDED) // ONE_IN
    assert (
        found["cache_ttl_remaining_seconds_sum", "query=q"] == 9 * found["cache_ttl_remaining_seconds_count", "query=q"]
    )
    events.note_hit(("q", 1_000_000, 9_000_000, False))
    recorded = recorded_metrics(reader)["cache_age_at_access_seconds_count", "query=q"]
    assert recorded == found["cache_age_at_access_seconds_count", "query=q"] + 1, "after an export all are again"


def test_nothing_is_lost_or_doubled_between_threads(reader: InMemoryMetricReader, events: OTelEvents) -> None:
    count, go = 5 * FOLD_AT + 7, threading.Barrier(4)

    def tell() -> None:
        go.wait()
        for _ in range(count):
            events.note_hit(("q", 1_000_000, 9_000_000, True))

    threads = [threading.Thread(target=tell) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        recorded_metrics(reader)
    for thread in threads:
        thread.join()
    found = recorded_metrics(reader)
    assert found["cache_hit_total", "query=q"] == found["xfetch_stale_served_total", "query=q"] == 4 * count


def test_a_forked_child_counts_its_own_hits_alone(reader: InMemoryMetricReader, events: OTelEvents) -> None:
    events.note_hit(("q", 1_000_000, 9_000_000, False))
    recorded_metrics(reader)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        events.note_hit(("q", 1_000_000, 9_000_000, False))
        os.write(write, str(recorded_metrics(reader)["cache_hit_total", "query=q"]).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert float(os.read(read, 100)) == 1
    assert recorded_metrics(reader)["cache_hit_total", "query=q"] == 1
    os.close(read)
    os.close(write)


def test_the_setting_makes_all_clients_of_a_process_tell_one_object() -> None:
    settings = ReaderSettings(otel=True)
    assert isinstance(_build_events(None, settings), OTelEvents)
    assert _build_events(None, settings) is _build_events(None, settings)


def test_with_both_settings_both_are_told_and_hits_are_still_noted() -> None:
    both = _build_events(None, ReaderSettings(otel=True, metrics=True))
    assert both.note_hit is not None
    assert both.spans is _build_events(None, ReaderSettings(otel=True)).spans


def test_without_the_api_the_setting_is_wrong_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "api_client.observe.otel", None)
    with pytest.raises(ConfigurationError, match=r"CACHE_OTEL=true.*opentelemetry-api.*refresher\[otel\]"):
        _build_events(None, ReaderSettings(otel=True))
