"""The demo, and an application's own tests, on a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from api_client import get_cached
from api_client.transport.redis_py import connect
from refresher.demo.environment import started_environment
from refresher.demo.options import DemoOptions
from refresher.embedded import ArcadeDbServer
from refresher.testing import InlineCache
from tests.acceptance.test_demo import SMALL, Demo
from tests.integration.topologies.conftest import KEYS
from tests.servers.redis_cluster import Cluster
from tests.support.waiting import MAX_WAIT_SECONDS


def is_empty(cluster: Cluster) -> bool:
    return not any(cluster.execute(node, "DBSIZE") for node in cluster.nodes)


def as_the_demo_gets_it(cluster: Cluster, arcadedb: ArcadeDbServer) -> tuple[str, dict[str, str]]:
    environ = {
        "REDIS_PASSWORD": cluster.password,
        "NEO4J_USER": arcadedb.user,
        "NEO4J_PASSWORD": arcadedb.password,
        "NEO4J_DATABASE": arcadedb.database,
    }
    return cluster.url().replace(f":{cluster.password}@", ""), environ


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


def test_the_demo_has_a_broker_of_its_own_beside_a_cluster(
    cluster: Cluster, arcadedb: ArcadeDbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, environ = as_the_demo_gets_it(cluster, arcadedb)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CACHE_BROKER_URL", raising=False)
    with started_environment(DemoOptions(redis_url=url, neo4j_uri=arcadedb.bolt_uri)) as found:
        with redis.Redis.from_url(found.settings.broker_url) as broker:
            assert broker.info("cluster")["cluster_enabled"] == 0
        with connect(found.settings.redis_url, timeout_seconds=MAX_WAIT_SECONDS) as cache:
            for n in KEYS:
                cache.set(f"{found.settings.namespace}:e1:{{{n}}}", "x")
    assert is_empty(cluster)


@pytest.mark.long
def test_the_demo_passes_on_a_cluster_and_leaves_nothing_behind(
    cluster: Cluster, arcadedb: ArcadeDbServer, tmp_path: Path
) -> None:
    url, environ = as_the_demo_gets_it(cluster, arcadedb)
    (graph := tmp_path / "edges.txt").write_text(SMALL)
    own = ("--redis-url", url, "--neo4j-uri", arcadedb.bolt_uri, "--graph", str(graph))
    with Demo(tmp_path, "--seconds", "4", *own, **environ) as demo:
        assert demo.ended() == 0, demo.out + demo.err
    assert "none failed" in demo.out
    assert is_empty(cluster)
