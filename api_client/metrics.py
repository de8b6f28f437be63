"""Prometheus metrics of a reader: the public path of `observe.prometheus`; the names are in `observe.metrics`."""

from api_client.observe.prometheus import PrometheusEvents

__all__ = ["PrometheusEvents"]
