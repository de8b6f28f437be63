"""Prometheus back end of metrics. Needs prometheus_client: ``pip install 'refresher[metrics]'``."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from api_client.observe.metrics import READER_METRICS, Kind, MeteredEvents, Metric, Record


class PrometheusBackend:
    """The metrics of a table in a registry of prometheus_client, or with None only in its multiprocess files."""

    def __init__(self, table: Mapping[str, Metric], registry: CollectorRegistry | None) -> None:
        self._metrics = {name: _made(metric, registry) for name, metric in table.items()}

    def bind(self, name: str, *labels: str) -> Record:
        """Return the recorder for one set of label values, exposed at 0 from now on."""
        metric = self._metrics[name]
        child = metric.labels(*labels) if labels else metric
        return child.observe if isinstance(child, Histogram) else child.inc


def _made(metric: Metric, registry: CollectorRegistry | None) -> Counter | Gauge | Histogram:
    name, help_, labels = metric.name, metric.help, metric.labels
    if metric.kind is Kind.HISTOGRAM:
        return Histogram(name, help_, labels, registry=registry, buckets=metric.buckets)
    if metric.kind is Kind.UP_DOWN:
        return Gauge(name, help_, labels, registry=registry, multiprocess_mode="livesum")
    return Counter(name, help_, labels, registry=registry)


class PrometheusEvents(MeteredEvents):
    """Counts a reader's events in a registry of prometheus_client, by ``query``; invalidations of tags by ``kind``.

    One object serves all clients of a process. Under a forking server (gunicorn) prometheus_client's multiprocess mode
    works without change: PROMETHEUS_MULTIPROC_DIR names a folder, and the process that serves the metrics uses
    MultiProcessCollector.

    Args:
        registry: the registry for the metrics; default: prometheus_client's own.

    Raises:
        ValueError: the registry already has these metrics (one object per registry).
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        super().__init__(PrometheusBackend(READER_METRICS, registry))


@functools.cache
def default_events() -> PrometheusEvents:
    """Return the events for prometheus_client's own registry, for all clients of the process."""
    return PrometheusEvents()
