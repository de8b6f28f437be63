"""Names, kinds, labels, helps, units and buckets of all metrics: users' dashboards and alerts depend on them.

``python -m tests.contract.test_metric_exposition`` rewrites the recorded file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, Sum
from prometheus_client import CollectorRegistry

from api_client import ReaderEvents, ReadFailure, RefreshReason
from api_client.metrics import PrometheusEvents
from api_client.otel import OTelEvents
from refresher import WorkerEvents
from refresher.ops.health import Verdict
from refresher.otel import OTelWorkerEvents
from refresher.queries import Registry, query
from refresher.telemetry.metrics import WorkerGauges
from refresher.telemetry.otel import observe_gauges
from refresher.telemetry.prometheus import GaugeCollector, PrometheusWorkerEvents

RECORDED = Path(__file__).with_name("metrics.txt")


def test_every_metric_is_exposed_as_it_was_recorded() -> None:
    assert [*exposition()] == RECORDED.read_text(encoding="utf-8").splitlines()


def exposition() -> Iterator[str]:
    """One line per metric, sorted by package and back end."""
    queries = Registry()
    query("q", ttl=300, grace=60, into=queries)(lambda tx: None)
    readers, workers, scraped = CollectorRegistry(), CollectorRegistry(), CollectorRegistry()
    emit_as_reader(PrometheusEvents(readers))
    emit_as_worker(PrometheusWorkerEvents(workers))
    looked_up = WorkerGauges(lambda: 7, list, lambda: {"q": 3}, lambda: 2, lambda: 0.5, queries)
    scraped.register(GaugeCollector(lambda: Verdict({"cache": None}), looked_up))
    for name, registry in (("reader", readers), ("worker", workers), ("gauge", scraped)):
        yield from sorted(f"prometheus {name} {line}" for line in in_prometheus(registry))
    exported, gauges = InMemoryMetricReader(), InMemoryMetricReader()
    emit_as_reader(OTelEvents(meter_provider=MeterProvider([exported])))
    yield from sorted(f"otel reader {line}" for line in in_opentelemetry(exported))
    exported = InMemoryMetricReader()
    emit_as_worker(OTelWorkerEvents(meter_provider=MeterProvider([exported])))
    yield from sorted(f"otel worker {line}" for line in in_opentelemetry(exported))
    observe_gauges(looked_up, MeterProvider([gauges]).get_meter("gauges"))
    yield from sorted(f"otel gauge {line}" for line in in_opentelemetry(gauges))


def emit_as_reader(events: ReaderEvents) -> None:
    """Emit each event once, and hits of all kinds."""
    events.hit("q", age_seconds=7.5, ttl_remaining_seconds=2.0, triggered=False)
    events.hit("q", age_seconds=7.5, ttl_remaining_seconds=-2.0, triggered=True)
    events.miss("q")
    events.single_flight_hit("q", waited_seconds=1.0)
    events.unreadable_entry("q", reason="digest")
    events.refresh_triggered("q", reason=RefreshReason.EARLY)
    events.refresh_republished("q")
    events.refresh_deduplicated("q", state="running")
    events.refresh_dropped("q", why="backlog")
    events.trigger_failed("q", why="OSError")
    events.unavailable("q")
    events.read_failed("q", why=ReadFailure.TIMEOUT)
    events.tags_invalidated(hard=True, entries=3, seconds=0.02)


def emit_as_worker(events: WorkerEvents) -> None:
    """Emit each event once."""
    events.acquired("q")
    events.load_begun("q", keys=3)
    events.committed("q", delta_seconds=1.5, run_seconds=0.2, as_stale=False)
    events.found_unchanged("q")
    events.rejected("q", why="lost")
    events.skipped("q", why="running")
    events.waited_for_budget("q", seconds=0.5)
    events.retried("q", kind="timeout", attempt=1, pause_seconds=1.0)
    events.failed("q", kind="syntax", attempts=1)
    events.message_dropped(reason="body")
    events.changes_invalidated(transactions=2, tags=3, entries=4, bulk=1)
    events.change_invalidated(staleness_seconds=0.05)


def in_prometheus(registry: CollectorRegistry) -> Iterator[str]:
    for metric in registry.collect():
        samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
        series = sorted({f"{one.name}{_shown({k: v for k, v in one.labels.items() if k != 'le'})}" for one in samples})
        buckets = [one.labels["le"] for one in samples if "le" in one.labels]
        about = f"{metric.name} {metric.type} unit={metric.unit!r} help={metric.documentation!r}"
        yield f"{about} {' '.join(series)} buckets={buckets}"


def in_opentelemetry(reader: InMemoryMetricReader) -> Iterator[str]:
    data = reader.get_metrics_data()
    assert data is not None
    for scope in (scope for resource in data.resource_metrics for scope in resource.scope_metrics):
        for metric in scope.metrics:
            kind = type(metric.data).__name__
            if isinstance(metric.data, Sum):
                kind += f" monotonic={metric.data.is_monotonic}"
            about = f"{metric.name} {kind} unit={metric.unit!r} help={metric.description!r}"
            points = sorted(_shown(point.attributes or {}) for point in metric.data.data_points)
            buckets = next(
                (p.explicit_bounds for p in metric.data.data_points if isinstance(p, HistogramDataPoint)), ()
            )
            yield f"{about} {' '.join(points)} buckets={list(map(float, buckets))}"


def _shown(labels: Any) -> str:
    return "{" + ",".join(f"{name}={value}" for name, value in sorted(labels.items())) + "}"


if __name__ == "__main__":
    RECORDED.write_text("\n".join(exposition()) + "\n", encoding="utf-8")
