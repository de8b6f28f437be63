"""The demo's counts: histograms, tallies, and the workers' metrics."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import fields

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from refresher.demo.counts import Histogram, Tally
from refresher.demo.workers import WorkerCounts, parse_metrics
from refresher.telemetry.prometheus import PrometheusWorkerEvents


def histogram_of(*durations_seconds: float) -> Histogram:
    histogram = Histogram()
    for duration_seconds in durations_seconds:
        histogram.record(duration_seconds)
    return histogram


def test_quantiles_are_within_a_few_percent() -> None:
    draw = random.Random(1)  # noqa: S311 - durations, no secret
    durations = [draw.lognormvariate(-8, 1.5) for _ in range(5_000)]
    histogram = histogram_of(*durations)
    for share in (0.5, 0.99, 0.999):
        exact = sorted(durations)[int(share * len(durations)) - 1]
        assert histogram.quantile_seconds(share) == pytest.approx(exact, rel=0.05)
    assert histogram.longest_seconds == max(durations)
    assert histogram.count == 5_000


def test_a_quantile_is_at_most_the_maximum_and_0_without_durations() -> None:
    assert Histogram().quantile_seconds(0.99) == 0
    assert histogram_of(0.0).quantile_seconds(0.5) == 0
    assert histogram_of(1.0).quantile_seconds(0.99) == pytest.approx(1.0, rel=0.02)
    assert histogram_of(1.0).quantile_seconds(0.99) <= 1.0


def test_tallies_add_up_and_keep_the_maximum() -> None:
    total = Tally(fresh=3, stale=1, overdue_seconds=2.0, at_once=histogram_of(0.001))
    total.merge(Tally(fresh=4, failed=1, overdue_seconds=0.5, at_once=histogram_of(0.002), suppressed=2))
    assert (total.fresh, total.stale, total.failed, total.reads, total.spared) == (7, 1, 1, 9, 2)
    assert total.overdue_seconds == 2.0
    assert total.at_once.count == 2
    merged = Tally()
    merged.merge(total)
    assert all(getattr(merged, item.name) == getattr(total, item.name) for item in fields(Tally))


def test_a_worker_s_counts_are_read_from_its_metrics() -> None:
    """As the worker's own back end exposes them, so that a renamed metric fails here."""
    registry = CollectorRegistry()
    events = PrometheusWorkerEvents(registry)
    for query in ("a", "b"):
        events.acquired(query)
        events.committed(query, delta_seconds=0.25, run_seconds=0.1, as_stale=False)
    events.ended("a")
    events.rejected("a", why="superseded")
    events.rejected("b", why="superseded")
    events.rejected("b", why="lost")
    events.retried("a", kind="timeout", attempt=1, pause_seconds=1.0)
    events.failed("a", kind="syntax", attempts=1)
    counts, consumes = parse_metrics(generate_latest(registry).decode())
    assert counts == WorkerCounts(2, Counter({"superseded": 2, "lost": 1}), 1, 1, 1, 0.5)
    assert counts.loads == 7
    assert not consumes


@pytest.mark.parametrize(("consumer", "consumes"), [(1.0, True), (0.0, False)])
def test_a_worker_that_consumes_is_ready_whatever_else_is_not(consumer: float, consumes: bool) -> None:
    gauges = f'refresher_ready{{part="consumer"}} {consumer}\nrefresher_ready{{part="graph"}} {1 - consumer}\n'
    assert parse_metrics(gauges) == (WorkerCounts(), consumes)


def test_the_counts_of_workers_add_up() -> None:
    killed = WorkerCounts(2, Counter({"lost": 1}), 1, 0, 3, 0.5)
    successor = WorkerCounts(4, Counter({"lost": 1, "superseded": 1}), 0, 1, 0, 1.5)
    assert killed + successor == WorkerCounts(6, Counter({"lost": 2, "superseded": 1}), 1, 1, 3, 2.0)
