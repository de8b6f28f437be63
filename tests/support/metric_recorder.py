"""Metrics of an SDK's in-memory reader, in the shape that Prometheus scrapes."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader


def recorded_metrics(reader: InMemoryMetricReader) -> dict[tuple[str, ...], float]:
    """Return values that are not 0, by name and attributes; of a histogram, its count, sum and buckets."""
    data = reader.get_metrics_data()
    if data is None:
        return {}
    found: dict[tuple[str, ...], float] = {}
    for metric in (m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics):
        for point in metric.data.data_points:
            labels = {str(name): value for name, value in (point.attributes or {}).items()}
            if isinstance(point, HistogramDataPoint):
                bounds = [*map(float, point.explicit_bounds), "+Inf"]
                for bound, below in zip(bounds, accumulate(point.bucket_counts), strict=True):
                    found[_key(f"{metric.name}_bucket", labels | {"le": bound})] = below
                found[_key(f"{metric.name}_count", labels)] = point.count
                found[_key(f"{metric.name}_sum", labels)] = point.sum
            else:
                found[_key(metric.name, labels)] = point.value
    return {key: value for key, value in found.items() if value}


def _key(name: str, labels: dict[str, Any]) -> tuple[str, ...]:
    return (name, *(f"{label}={value}" for label, value in sorted(labels.items())))
