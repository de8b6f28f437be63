"""A reader's events in a registry of prometheus_client: each in its metric, hits added up before a scrape."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, Histogram

from api_client import ConfigurationError, ReaderSettings, ReadFailure, RefreshReason
from api_client.client import _build_events
from api_client.observe.events import ReaderEvents, guarded, together
from api_client.observe.metrics import AGE_BUCKETS_SECONDS, FOLD_AT
from api_client.observe.prometheus import PrometheusEvents
from tests.support.event_recorder import EventRecorder

ROOT = Path(__file__).parents[4]


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def events(registry: CollectorRegistry) -> PrometheusEvents:
    return PrometheusEvents(registry)


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    """What a scrape finds."""
    for metric in registry.collect():
        for sample in metric.samples:
            if sample.name == name and sample.labels == {"query": "q", **labels}:
                return sample.value
    return None


def hit(events: PrometheusEvents, *, age: float = 1.0, left: float = 9.0, triggered: bool = False) -> None:
    """A hit, noted as a reader does."""
    events.note_hit(("q", round(age * 1e6), round(left * 1e6), triggered))


def test_a_hit_is_counted_at_the_next_scrape_with_its_age_and_what_was_left(
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
    assert value(registry, "cache_ttl_remaining_seconds_sum") == 35.0
    assert value(registry, "cache_stale_seconds_count") == 2
    assert value(registry, "cache_stale_seconds_sum") == 100.0
    assert value(registry, "cache_stale_seconds_bucket", le="60.0") == 1
    assert value(registry, "cache_stale_seconds_bucket", le="150.0") == 2


def test_a_hit_that_is_told_at_once_is_counted_as_well(registry: CollectorRegistry, events: PrometheusEvents) -> None:
    events.hit("q", age_seconds=3.0, ttl_remaining_seconds=-2.0, triggered=True)
    assert value(registry, "cache_hit_total") == value(registry, "xfetch_stale_served_total") == 1
    assert value(registry, "cache_stale_seconds_sum") == 2.0


def test_a_reader_notes_its_hits(registry: CollectorRegistry, events: PrometheusEvents) -> None:
    assert guarded(events, ReaderEvents).note_hit == events.note_hit
    assert together([events, EventRecorder()], ReaderEvents).note_hit is None


@pytest.mark.parametrize("bound", AGE_BUCKETS_SECONDS)
def test_a_bucket_holds_what_is_at_most_its_bound_as_observe_has_it(
    registry: CollectorRegistry, events: PrometheusEvents, bound: float
) -> None:
    expected = Histogram("expected", "e", ("query",), registry=CollectorRegistry(), buckets=AGE_BUCKETS_SECONDS)
    for seconds in (bound - 0.01, bound, bound + 0.01, 1e9):
        expected.labels("q").observe(seconds)
        hit(events, age=seconds)
    found = {
        sample.labels["le"]: sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "cache_age_at_access_seconds_bucket"
    }
    assert found == {
        sample.labels["le"]: sample.value
        for metric in expected.collect()
        for sample in metric.samples
        if sample.name == "expected_bucket"
    }


def test_nothing_is_lost_or_doubled_between_threads(registry: CollectorRegistry, events: PrometheusEvents) -> None:
    count, go = 20 * FOLD_AT + 7, threading.Barrier(4)

    def tell() -> None:
        go.wait()
        for _ in range(count):
            hit(events)

    threads = [threading.Thread(target=tell) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        events.flush()
    for thread in threads:
        thread.join()
    assert value(registry, "cache_hit_total") == 4 * count
    assert value(registry, "cache_age_at_access_seconds_count") == 4 * count


@pytest.mark.parametrize(
    ("tell", "name", "labels"),
    [
        (lambda e: e.miss("q"), "cache_miss_total", {}),
        (lambda e: e.unavailable("q"), "cache_unavailable_total", {}),
        (lambda e: e.single_flight_hit("q", waited_seconds=1.0), "xfetch_single_flight_hits_total", {}),
        (lambda e: e.refresh_deduplicated("q", state="running"), "xfetch_lock_contention_total", {}),
        (lambda e: e.refresh_republished("q"), "xfetch_refresh_republished_total", {}),
        (
            lambda e: e.refresh_triggered("q", reason=RefreshReason.EARLY),
            "xfetch_refresh_triggered_total",
            {"reason": "early"},
        ),
        (lambda e: e.refresh_dropped("q", why="backlog"), "xfetch_refresh_dropped_total", {"why": "backlog"}),
        (lambda e: e.trigger_failed("q", why="OSError"), "xfetch_trigger_failed_total", {"why": "OSError"}),
        (
            lambda e: e.read_failed("q", why=ReadFailure.TIMEOUT),
            "cache_read_failed_total",
            {"why": "timeout"},
        ),
        (lambda e: e.unreadable_entry("q", reason="digest"), "cache_unreadable_total", {"reason": "digest"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_other_event_is_a_counter(
    registry: CollectorRegistry, events: PrometheusEvents, tell: object, name: str, labels: dict[str, str]
) -> None:
    assert callable(tell)
    tell(guarded(events, ReaderEvents))
    assert value(registry, name, **labels) == 1


def test_with_the_first_event_of_a_query_its_counters_are_there_at_0(
    registry: CollectorRegistry, events: PrometheusEvents
) -> None:
    events.miss("q")
    for name in ("cache_hit_total", "cache_unavailable_total", "xfetch_refresh_republished_total"):
        assert value(registry, name) == 0
    assert value(registry, "xfetch_refresh_triggered_total", reason="stale") == 0
    assert value(registry, "cache_read_failed_total", why="decode") == 0
    assert value(registry, "cache_miss_total") == 1


def test_every_event_of_a_reader_is_counted() -> None:
    told = {name for name, method in vars(ReaderEvents).items() if callable(method)}
    assert told <= set(vars(PrometheusEvents))


def test_a_forked_child_counts_its_own_hits_alone(registry: CollectorRegistry, events: PrometheusEvents) -> None:
    hit(events)
    hit(events)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        hit(events)
        events.flush()
        os.write(write, str(value(registry, "cache_hit_total")).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 100) == b"1.0"
    assert value(registry, "cache_hit_total") == 2
    os.close(read)
    os.close(write)


def test_in_multiprocess_mode_another_process_sees_the_hits_of_one_that_has_fallen_silent(tmp_path: Path) -> None:
    script = """
import sys
from api_client.observe.prometheus import default_events
from tests.unit.api_client.observe.test_reader_metrics import hit
hit(default_events(), age=2.0)
sys.stdin.read()
"""
    env = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    from prometheus_client.multiprocess import MultiProcessCollector

    from tests.support.waiting import eventually

    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(tmp_path))  # type: ignore[no-untyped-call]
    reader = subprocess.Popen([sys.executable, "-c", script], env=env, stdin=subprocess.PIPE)
    try:
        eventually(lambda: value(registry, "cache_hit_total") == 1, 20, "the hit is seen")
        eventually(lambda: value(registry, "cache_age_at_access_seconds_sum") == 2.0, 20, "and its age")
    finally:
        reader.communicate(timeout=20)


def test_two_in_one_registry_are_refused(registry: CollectorRegistry, events: PrometheusEvents) -> None:
    with pytest.raises(ValueError, match="cache_hit"):
        PrometheusEvents(registry)


def test_the_setting_makes_all_clients_of_a_process_count_in_one_registry() -> None:
    settings = ReaderSettings(metrics=True)
    assert isinstance(_build_events(None, settings), PrometheusEvents)
    assert _build_events(None, settings) is _build_events(None, settings)
    assert type(_build_events(None, ReaderSettings())) is ReaderEvents


def test_who_has_events_of_its_own_is_told_as_well() -> None:
    own = EventRecorder()
    before = REGISTRY.get_sample_value("cache_miss_total", {"query": "both"}) or 0
    _build_events(own, ReaderSettings(metrics=True)).miss("both")
    assert own.recorded == [("miss",)]
    assert REGISTRY.get_sample_value("cache_miss_total", {"query": "both"}) == before + 1
    assert _build_events(own, ReaderSettings()) is own


def test_without_prometheus_client_the_setting_is_wrong_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "api_client.observe.prometheus", None)
    with pytest.raises(ConfigurationError, match=r"CACHE_METRICS=true.*prometheus_client.*refresher\[metrics\]"):
        _build_events(None, ReaderSettings(metrics=True))
