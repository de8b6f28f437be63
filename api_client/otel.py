"""OpenTelemetry metrics and spans of a reader: the documented path of `api_client.observe.otel`."""

from api_client.observe.otel import OTelEvents

__all__ = ["OTelEvents"]
