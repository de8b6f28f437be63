"""A test's own collector: receives an SDK's exports by OTLP over HTTP, and keeps them."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.span_recorder import RecordedSpan
from tests.support.waiting import MAX_WAIT_SECONDS


@dataclass(frozen=True)
class ExportedPoint:
    """One point of a metric; ``value`` is the count of a histogram."""

    name: str
    attributes: dict[str, Any]
    value: float
    instance: str


class Collector:
    """The exports so far. Thread-safe."""

    def __init__(self) -> None:
        self._bodies: list[tuple[str, bytes]] = []
        self.token = secrets.token_hex(16)
        self.port = 0

    @property
    def env(self) -> dict[str, str]:
        """Return the variables that let an SDK export here, soon."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.port}/{self.token}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_METRIC_EXPORT_INTERVAL": "500",
        }

    def took(self, path: str, body: bytes) -> None:
        self._bodies.append((path, body))

    @property
    def raw(self) -> bytes:
        """Return all exports in raw bytes."""
        return b"".join(body for _, body in list(self._bodies))

    @property
    def spans(self) -> list[RecordedSpan]:
        requests = [ExportTraceServiceRequest.FromString(body) for path, body in list(self._bodies) if "traces" in path]
        return [
            _span(span, _values(of_resource.resource.attributes))
            for request in requests
            for of_resource in request.resource_spans
            for of_scope in of_resource.scope_spans
            for span in of_scope.spans
        ]

    @property
    def points(self) -> list[ExportedPoint]:
        """Return all points in the order of their exports: the last of a name, its attributes and instance counts."""
        return [
            point
            for path, body in list(self._bodies)
            if "metrics" in path
            for point in _points(ExportMetricsServiceRequest.FromString(body))
        ]

    @property
    def instances(self) -> set[str]:
        """Return the processes that have exported metrics."""
        return {point.instance for point in self.points}

    def total(self, name: str, **attributes: str) -> float:
        """Return the sum over all instances of the last value of each."""
        wanted = [one for one in self.points if one.name == name and attributes.items() <= one.attributes.items()]
        last = {(one.instance, tuple(sorted(one.attributes.items()))): one.value for one in wanted}
        return sum(last.values())


def _span(span: Span, resource: dict[str, Any]) -> RecordedSpan:
    return RecordedSpan(
        name=span.name,
        kind=Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        attributes=_values(span.attributes),
        failed=span.status.code == 2,
        began_ns=span.start_time_unix_nano,
        ended_ns=span.end_time_unix_nano,
        service=str(resource.get("service.name")),
        texts=(span.status.message, *(event.name for event in span.events)),
    )


def _points(request: ExportMetricsServiceRequest) -> Iterator[ExportedPoint]:
    for of_resource in request.resource_metrics:
        instance = str(_values(of_resource.resource.attributes).get("service.instance.id"))
        for metric in (metric for of_scope in of_resource.scope_metrics for metric in of_scope.metrics):
            data = getattr(metric, metric.WhichOneof("data"))
            for point in data.data_points:
                value = point.count if metric.HasField("histogram") else point.as_int or point.as_double
                yield ExportedPoint(metric.name, _values(point.attributes), float(value), instance)


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector that listens on loopback, under a secret path."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            known = self.path.startswith(f"/{collector.token}/")
            if known:
                collector.took(self.path, body)
            self.send_response(200 if known else 404)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join(MAX_WAIT_SECONDS)
