"""A reader's events in a registry of prometheus_client."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from prometheus_client import REGISTRY, CollectorRegistry

from api_client import ConfigurationError, ReaderSettings
from api_client.observe.events import ReaderEvents
from api_client.observe.metrics import MeteredEvents
from api_client.observe.prometheus import PrometheusEvents
from api_client.observe.setup import build_events
from tests.support.event_recorder import EventRecorder
from tests.support.waiting import MAX_WAIT_SECONDS

ROOT = Path(__file__).parents[4]


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def events(registry: CollectorRegistry) -> PrometheusEvents:
    return PrometheusEvents(registry)


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    """Return what a scrape finds."""
    for metric in registry.collect():
        for sample in metric.samples:
            if sample.name == name and sample.labels == {"query": "q", **labels}:
                return sample.value
    return None


def hit(events: ReaderEvents, *, age: float = 1.0, left: float = 9.0, triggered: bool = False) -> None:
    """Record a hit."""
    events.hit("q", age_seconds=age, ttl_remaining_seconds=left, triggered=triggered)


def test_a_hit_is_counted_with_its_age_and_its_remaining_ttl(
    registry: CollectorRegistry, events: PrometheusEvents
) -> None:
    hit(events, age=7.0, left=20.0)
    hit(events, age=0.5, left=15.0, triggered=True)
    hit(events, age=400.0, left=-100.0, triggered=True)
    hit(events, age=300.0, left=0.0)
    assert value(registry, "cache_hit_total") == 4
    assert value(registry, "xfetch_stale_served_total") == 2
    assert value(registry, "cache_expired_served_total") == 2
    assert value(registry, "cache_age_at_access_seconds_count") == 4
    assert value(registry, "cache_age_at_access_seconds_sum") == 707.5
    assert value(registry, "cache_ttl_remaining_seconds_count") == 4
    assert value(registry, "cache_ttl_remaining_seconds_sum") == 35.0
    assert value(registry, "cache_stale_seconds_count") == 2
    assert value(registry, "cache_stale_seconds_sum") == 100.0
    assert value(registry, "cache_stale_seconds_bucket", le="60.0") == 1
    assert value(registry, "cache_stale_seconds_bucket", le="150.0") == 2


def test_concurrent_first_hits_of_a_query_are_each_counted_once(
    registry: CollectorRegistry, events: PrometheusEvents
) -> None:
    count, go = 1_000, threading.Barrier(4)

    def emit() -> None:
        go.wait()
        for _ in range(count):
            hit(events)

    threads = [threading.Thread(target=emit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert value(registry, "cache_hit_total") == 4 * count
    assert value(registry, "cache_age_at_access_seconds_count") == 4 * count


def test_the_first_event_of_a_query_exports_all_its_counters_at_0(
    registry: CollectorRegistry, events: PrometheusEvents
) -> None:
    events.miss("q")
    for name in ("cache_hit_total", "cache_unavailable_total", "xfetch_refresh_republished_total"):
        assert value(registry, name) == 0
    assert value(registry, "xfetch_refresh_triggered_total", reason="stale") == 0
    assert value(registry, "cache_read_failed_total", why="decode") == 0
    assert value(registry, "cache_miss_total") == 1


def test_every_event_of_a_reader_is_counted() -> None:
    names = {name for name, method in vars(ReaderEvents).items() if callable(method)}
    assert names <= set(vars(MeteredEvents))


def test_in_multiprocess_mode_another_process_sees_each_hit_of_a_process_and_of_its_child_once(tmp_path: Path) -> None:
    script = """
import os, sys
from api_client.observe.prometheus import default_events
from tests.unit.api_client.observe.test_metrics import hit
hit(default_events(), age=2.0)
hit(default_events(), age=2.0)
child = os.fork()
hit(default_events(), age=3.0)
if child:
    os.waitpid(child, 0)
    print("done", flush=True)
    sys.stdin.read()
"""
    env = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    from prometheus_client.multiprocess import MultiProcessCollector

    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(tmp_path))  # type: ignore[no-untyped-call]
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdout.readline() == b"done\n"
        assert value(registry, "cache_hit_total") == 4
        assert value(registry, "cache_age_at_access_seconds_sum") == 10.0
        reader.communicate(timeout=MAX_WAIT_SECONDS)


def test_a_second_set_of_metrics_in_one_registry_is_refused(
    registry: CollectorRegistry, events: PrometheusEvents
) -> None:
    with pytest.raises(ValueError, match="cache_hit"):
        PrometheusEvents(registry)


def test_with_cache_metrics_all_clients_of_a_process_count_in_one_registry() -> None:
    before = REGISTRY.get_sample_value("cache_miss_total", {"query": "two"}) or 0
    for _ in range(2):
        build_events(None, ReaderSettings(metrics=True)).miss("two")
    assert REGISTRY.get_sample_value("cache_miss_total", {"query": "two"}) == before + 2


def test_a_client_s_own_events_are_notified_as_well() -> None:
    own = EventRecorder()
    before = REGISTRY.get_sample_value("cache_miss_total", {"query": "both"}) or 0
    build_events(own, ReaderSettings(metrics=True)).miss("both")
    build_events(own, ReaderSettings()).miss("both")
    assert own.recorded == [("miss",), ("miss",)]
    assert REGISTRY.get_sample_value("cache_miss_total", {"query": "both"}) == before + 1


def test_without_prometheus_client_cache_metrics_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "api_client.observe.prometheus", None)
    with pytest.raises(ConfigurationError, match=r"CACHE_METRICS=true.*prometheus_client.*refresher\[metrics\]"):
        build_events(None, ReaderSettings(metrics=True))
