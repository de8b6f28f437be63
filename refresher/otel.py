"""OpenTelemetry metrics and spans of a worker: the public path of `refresher.telemetry.otel`."""

from refresher.telemetry.otel import OTelWorkerEvents

__all__ = ["OTelWorkerEvents"]
