"""What a test's SDK of OpenTelemetry recorded: spans, and metrics in the shape that Prometheus scrapes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, format_span_id, format_trace_id


@dataclass(frozen=True)
class RecordedSpan:
    """One span; ``texts`` is its free text: of its status, and of its events."""

    name: str
    kind: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any] = field(hash=False)
    failed: bool
    began_ns: int
    ended_ns: int
    service: str = ""
    texts: tuple[str | None, ...] = ()

    def __getitem__(self, name: str) -> Any:
        return self.attributes.get(name)


class SpanRecorder:
    """A tracer provider that keeps ended spans."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")

    @property
    def spans(self) -> list[RecordedSpan]:
        return [_record_of(span) for span in self._exporter.get_finished_spans()]

    def forget(self) -> None:
        self._exporter.clear()


def _record_of(span: ReadableSpan) -> RecordedSpan:
    assert span.start_time
    assert span.end_time
    return RecordedSpan(
        name=span.name,
        kind=span.kind.name,
        trace=format_trace_id(span.context.trace_id),
        id=format_span_id(span.context.span_id),
        parent=format_span_id(span.parent.span_id) if span.parent else "",
        attributes=dict(span.attributes or {}),
        failed=span.status.status_code is StatusCode.ERROR,
        began_ns=span.start_time,
        ended_ns=span.end_time,
        texts=(span.status.description, *(event.name for event in span.events)),
    )


def path_to(span: RecordedSpan, spans: Iterable[RecordedSpan]) -> list[RecordedSpan]:
    """Return the span and its known ancestors, the topmost first."""
    by_id = {one.id: one for one in spans}
    path = [span]
    while (above := by_id.get(path[0].parent)) is not None:
        path.insert(0, above)
    return path


def tree_of(spans: Iterable[RecordedSpan], *shown: str) -> list[str]:
    """Return a trace as lines of text: each span under its parent, by its begin, with these attributes."""
    kept = sorted(spans, key=lambda span: span.began_ns)
    ids = {span.id for span in kept}
    return [line for span in kept if span.parent not in ids for line in lines_of(span, kept, *shown)]


def lines_of(span: RecordedSpan, spans: Sequence[RecordedSpan], *shown: str, depth: int = 0) -> list[str]:
    """Return the lines of one span and of all its descendants."""
    notes = [f"{name}={span[name]}" for name in shown if span[name] is not None]
    lines = ["  " * depth + " ".join([span.name, span.kind, *notes])]
    for child in sorted(spans, key=lambda span: span.began_ns):
        if child.parent == span.id:
            lines += lines_of(child, spans, *shown, depth=depth + 1)
    return lines


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
