"""Prometheus metrics of a reader: the documented path of `observe.prometheus`; names are in `observe.metrics`."""

from api_client.observe.prometheus import PrometheusEvents

__all__ = ["PrometheusEvents"]
