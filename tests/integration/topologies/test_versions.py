"""An invalidation of all versions where they and their registry are on different nodes, and behind Sentinels."""

from __future__ import annotations

from api_client.protocol.keys import make_key, versions_key
from api_client.protocol.live_versions import register
from api_client.transport.redis_py import connect
from api_client.transport.scripts import LeaseStore
from tests.integration.topologies.conftest import NAMESPACE, TIMEOUT_SECONDS, WITH_REPLICAS_SECONDS, MakeReader
from tests.servers.redis_cluster import Cluster
from tests.servers.redis_sentinels import Sentinels
from tests.support.fake_worker import WorkedKey

VERSIONS = (1, 2, 3)


def plant(url: str) -> list[WorkedKey]:
    client = connect(url, timeout_seconds=TIMEOUT_SECONDS)
    store = LeaseStore(client)
    keys = [WorkedKey(client, store, make_key(NAMESPACE, "q", {}, version)) for version in VERSIONS]
    for key in keys:
        store.run(register(NAMESPACE, "q", key.key.version, lives_seconds=1_000))
        key.store_value("v")
    return keys


def are_stale(keys: list[WorkedKey]) -> bool:
    headers = [key.entry() for key in keys]
    return all(header is not None and header.generation > header.token for header in headers)


def test_on_a_cluster_all_versions_are_invalidated_wherever_they_are(make_reader: MakeReader, cluster: Cluster) -> None:
    reader = make_reader(cluster.url())
    assert reader.invalidate("q", {}).generations.keys() == {1}, "this process knows of no other"
    keys = plant(cluster.url())
    nodes = {cluster.node_of(key.key.entry) for key in keys}
    assert len(nodes | {cluster.node_of(versions_key(NAMESPACE, "q"))}) > 1
    for _ in range(2):  # what is new in a second round trip, then all in one
        assert reader.invalidate("q", {}).generations.keys() == set(VERSIONS)
        assert are_stale(keys)
        for key in keys:
            key.store_value("v")
    waits = make_reader(cluster.url(), redis_timeout_seconds=WITH_REPLICAS_SECONDS)
    assert waits.invalidate("q", {}, replicas=1).generations.keys() == set(VERSIONS)
    assert are_stale(keys)


def test_behind_sentinels_all_versions_are_invalidated(make_reader: MakeReader, sentinels: Sentinels) -> None:
    keys = plant(sentinels.url())
    done = make_reader(sentinels.url()).invalidate("q", {}, replicas=1)
    assert (done.generations.keys(), done.replicated) == (set(VERSIONS), True)
    assert are_stale(keys)
