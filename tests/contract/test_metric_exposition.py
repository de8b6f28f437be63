"""Names, kinds, labels, helps, units and buckets of all metrics: users' dashboards and alerts depend on them.

``python -m tests.contract.test_metric_exposition`` rewrites the recorded file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, Sum
from prometheus_client import CollectorRegistry

from api_client.metrics import PrometheusEvents
from api_client.otel import OTelEvents
from refresher.otel import OTelWorkerEvents
from refresher.queries import Registry, query
from refresher.telemetry.metrics import WorkerGauges
from refresher.telemetry.otel import observe_gauges
from refresher.telemetry.prometheus import GaugeCollector, PrometheusWorkerEvents
from tests.support.event_samples import READER_EVENTS, WORKER_EVENTS

RECORDED = Path(__file__).with_name("metrics.txt")


def test_every_metric_is_exposed_as_it_was_recorded() -> None:
    assert [*exposition()] == RECORDED.read_text(encoding="utf-8").splitlines()


def exposition() -> Iterator[str]:
    """One line per metric, sorted by package and back end."""
    queries = Registry()
    query("q", ttl=300, grace=60, into=queries)(lambda tx: None)
    readers, workers, scraped = CollectorRegistry(), CollectorRegistry(), CollectorRegistry()
    emit_all(PrometheusEvents(readers), READER_EVENTS)
    emit_all(PrometheusWorkerEvents(workers), WORKER_EVENTS)
    looked_up = WorkerGauges(lambda: 7, list, lambda: {"q": 3}, lambda: 2, lambda: 0.5, queries)
    scraped.register(GaugeCollector(lambda: {"cache": None}, looked_up))
    for name, registry in (("reader", readers), ("worker", workers), ("gauge", scraped)):
        yield from sorted(f"prometheus {name} {line}" for line in in_prometheus(registry))
    exported, gauges = InMemoryMetricReader(), InMemoryMetricReader()
    emit_all(OTelEvents(meter_provider=MeterProvider([exported])), READER_EVENTS)
    yield from sorted(f"otel reader {line}" for line in in_opentelemetry(exported))
    exported = InMemoryMetricReader()
    emit_all(OTelWorkerEvents(meter_provider=MeterProvider([exported])), WORKER_EVENTS)
    yield from sorted(f"otel worker {line}" for line in in_opentelemetry(exported))
    observe_gauges(looked_up, MeterProvider([gauges]).get_meter("gauges"))
    yield from sorted(f"otel gauge {line}" for line in in_opentelemetry(gauges))


def emit_all(events: Any, samples: dict[str, Callable[[Any], None]]) -> None:
    for emit in samples.values():
        emit(events)


def in_prometheus(registry: CollectorRegistry) -> Iterator[str]:
    for metric in registry.collect():
        samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
        series = sorted({f"{one.name}{_shown({k: v for k, v in one.labels.items() if k != 'le'})}" for one in samples})
        buckets = [one.labels["le"] for one in samples if "le" in one.labels]
        about = f"{metric.name} {metric.type} unit={metric.unit!r} help={metric.documentation!r}"
        yield f"{about} {' '.join(series)} buckets={buckets}"


def in_opentelemetry(reader: InMemoryMetricReader) -> Iterator[str]:
    data = reader.get_metrics_data()
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
