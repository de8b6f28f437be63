"""Prometheus metrics of a reader: the documented path of `api_client.observe.prometheus`."""

from api_client.observe.prometheus import PrometheusEvents

__all__ = ["PrometheusEvents"]
