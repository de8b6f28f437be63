"""Series that a worker's metrics begin with: to Prometheus, a counter's first value is no increase."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from refresher.flow.ports import DropReason
from refresher.telemetry.prometheus import PrometheusWorkerEvents


def test_values_stored_and_messages_dropped_begin_at_0() -> None:
    registry = CollectorRegistry()
    PrometheusWorkerEvents(registry).expect(["q"])
    assert registry.get_sample_value("xfetch_refresh_completed_total", {"query": "q"}) == 0
    for reason in DropReason:
        assert registry.get_sample_value("refresher_messages_dropped_total", {"reason": reason.value}) == 0
