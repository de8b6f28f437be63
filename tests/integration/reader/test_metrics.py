"""Readers that count for Prometheus: each kind reports its hits, fresh, stale and invalidated."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from prometheus_client import CollectorRegistry

from api_client import ReaderSettings
from api_client.observe.prometheus import PrometheusEvents
from tests.integration.reader.conftest import NewKey
from tests.support.any_reader import KINDS
from tests.support.waiting import MAX_WAIT_SECONDS


def test_hits_are_counted_with_their_age_and_remaining_ttl(
    kind: str, stack: ExitStack, settings: dict[str, Any], new_key: NewKey
) -> None:
    registry = CollectorRegistry()
    reader = KINDS[kind](ReaderSettings(**settings), PrometheusEvents(registry))
    stack.callback(reader.close)
    new_key("fresh").store_value("v", age_seconds=10, ttl_seconds=1000, beta=0.0)
    new_key("stale").store_value("v", age_seconds=500, ttl_seconds=100)
    invalidated = new_key("invalidated")
    token = invalidated.store_value("v", age_seconds=10, ttl_seconds=1000, beta=0.0)
    invalidated.store_value("v", age_seconds=10, ttl_seconds=1000, beta=0.0, generation=token + 10**9)
    for query in ("fresh", "stale", "invalidated"):
        for _ in range(2):
            assert reader.get(query, {}) == "v"
    assert reader.flush(MAX_WAIT_SECONDS)

    def counted(name: str, query: str) -> float:
        return registry.get_sample_value(name, {"query": query}) or 0.0

    hits = {query: counted("cache_hit_total", query) for query in ("fresh", "stale", "invalidated")}
    assert hits == {"fresh": 2, "stale": 2, "invalidated": 2}
    assert [counted("cache_expired_served_total", query) for query in hits] == [0, 2, 2]
    assert [counted("xfetch_stale_served_total", query) for query in hits] == [0, 2, 2]
    assert 20 <= counted("cache_age_at_access_seconds_sum", "fresh") < 200
    assert 1800 < counted("cache_ttl_remaining_seconds_sum", "fresh") <= 1980
    assert 800 <= counted("cache_stale_seconds_sum", "stale") < 1000
    assert counted("cache_ttl_remaining_seconds_sum", "invalidated") == 0
    assert counted("cache_stale_seconds_sum", "invalidated") == 0
    triggered = {"query": "stale", "reason": "stale"}
    assert registry.get_sample_value("xfetch_refresh_triggered_total", triggered) == 1
