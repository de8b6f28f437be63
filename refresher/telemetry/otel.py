"""OpenTelemetry back end of a worker's metrics and spans. ``pip install 'refresher[otel]'``.

It needs only OpenTelemetry's API; `refresher.telemetry.setup` sets up the SDK if a worker should have one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Meter, Observation

from api_client._version import __version__
from api_client.observe.metrics import Metric
from api_client.observe.otel import SCOPE, OTelBackend
from refresher.flow.ports import WorkerSpans
from refresher.telemetry.metrics import WORKER_METRICS, MeteredWorkerEvents, Values, WorkerGauges, look_up
from refresher.telemetry.otel_spans import OTelWorkerSpans


class OTelWorkerEvents(MeteredWorkerEvents):
    """Counts a worker's events through OpenTelemetry, and traces its refreshes.

    One object per process. The metrics have the same names as those of `PrometheusWorkerEvents`.

    Args:
        tracer_provider: default: the process's own (`opentelemetry.trace.get_tracer_provider`).
        meter_provider: default: the process's own (`opentelemetry.metrics.get_meter_provider`).
    """

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self.meter: Meter = metrics.get_meter(SCOPE, __version__, meter_provider)
        super().__init__(OTelBackend(WORKER_METRICS, self.meter))
        self.spans: WorkerSpans = OTelWorkerSpans(trace.get_tracer(SCOPE, __version__, tracer_provider))


def observe_gauges(gauges: WorkerGauges, meter: Meter) -> None:
    """Make ``meter`` look up ``gauges`` at each export."""
    for _, look, found in gauges.parts():
        for metric in found:
            observe = functools.partial(_observe, look, metric)
            meter.create_observable_gauge(metric.name, [observe], metric.unit, metric.help)


def _observe(look: Callable[[], Values], metric: Metric, _: CallbackOptions) -> list[Observation]:
    values = look_up(look).get(metric, {})
    return [Observation(value, dict(zip(metric.labels, labels, strict=True))) for labels, value in values.items()]
