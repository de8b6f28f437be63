"""OpenTelemetry metrics and spans of a reader: the public path of `api_client.observe.otel`."""

from api_client.observe.otel import OTelEvents

__all__ = ["OTelEvents"]
