"""OpenTelemetry back end of metrics, and a reader's events in it. ``pip install 'refresher[otel]'``.

It needs only OpenTelemetry's API: the application chooses the SDK and its destination.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final

from opentelemetry import metrics, trace
from opentelemetry.metrics import Counter, Histogram, Meter, UpDownCounter

from api_client._version import __version__
from api_client.observe.metrics import READER_METRICS, Kind, MeteredEvents, Metric, Record
from api_client.observe.otel_spans import OTelReaderSpans
from api_client.observe.tracing import ReaderSpans

SCOPE: Final = "refresher"


class OTelBackend:
    """The metrics of a table as instruments of ``meter``."""

    def __init__(self, table: Mapping[str, Metric], meter: Meter) -> None:
        self._table = table
        self._instruments = {name: _made(metric, meter) for name, metric in table.items()}

    def bind(self, name: str, *labels: str) -> Record:
        """Return the recorder for one set of attributes."""
        instrument = self._instruments[name]
        record = instrument.record if isinstance(instrument, Histogram) else instrument.add
        return functools.partial(record, attributes=dict(zip(self._table[name].labels, labels, strict=True)))


def _made(metric: Metric, meter: Meter) -> Counter | Histogram | UpDownCounter:
    name, unit, help_ = metric.name, metric.unit, metric.help
    if metric.kind is Kind.HISTOGRAM:
        return meter.create_histogram(name, unit, help_, explicit_bucket_boundaries_advisory=metric.buckets)
    if metric.kind is Kind.UP_DOWN:
        return meter.create_up_down_counter(name, unit, help_)
    return meter.create_counter(f"{name}_total", unit, help_)


class OTelEvents(MeteredEvents):
    """Counts a reader's events through OpenTelemetry, and traces its refreshes and waits.

    One object serves all clients of a process. The metrics have the same names as those of `PrometheusEvents`, and an
    attribute ``query``.

    Args:
        tracer_provider: default: the application's own (`opentelemetry.trace.get_tracer_provider`).
        meter_provider: default: the application's own (`opentelemetry.metrics.get_meter_provider`).
    """

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        super().__init__(OTelBackend(READER_METRICS, metrics.get_meter(SCOPE, __version__, meter_provider)))
        self.spans: ReaderSpans = OTelReaderSpans(trace.get_tracer(SCOPE, __version__, tracer_provider))


@functools.cache
def default_events() -> OTelEvents:
    """Return the events that use the application's own providers, for all clients of the process."""
    return OTelEvents()
