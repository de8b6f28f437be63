"""An application's own tests, on a cluster."""

from __future__ import annotations

from api_client import get_cached
from refresher.testing import InlineCache
from tests.integration.topologies.conftest import KEYS
from tests.servers.redis_cluster import Cluster


def is_empty(cluster: Cluster) -> bool:
    return not any(cluster.execute(node, "DBSIZE") for node in cluster.nodes)


def test_an_inline_cache_works_on_a_cluster_and_leaves_nothing_behind(cluster: Cluster) -> None:
    with InlineCache(redis_url=cluster.url()) as cache:
        cache.answer("doubled", lambda n: 2 * n, ttl="5m", grace="1h")
        assert [get_cached("doubled", {"n": n}) for n in KEYS] == [2 * n for n in KEYS]
        cache.answer("doubled", lambda n: 20 * n, ttl="5m", grace="1h")
        cache.advance("6m")
        assert [get_cached("doubled", {"n": n}) for n in KEYS] == [2 * n for n in KEYS]
        assert [get_cached("doubled", {"n": n}) for n in KEYS] == [20 * n for n in KEYS]
        assert all(cluster.execute(node, "DBSIZE") for node in cluster.nodes)
    assert is_empty(cluster)
