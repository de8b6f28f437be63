"""Invalidations of tags and of all versions on a cluster, where they are on several nodes, and behind Sentinels.

And an application's own tests, on a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from api_client import EntryState, TagInvalidation, get_cached
from api_client.protocol.keys import make_key, tag_index_key, versions_key
from api_client.protocol.live_versions import register
from api_client.transport.redis_py import connect
from api_client.transport.scripts import LeaseStore
from refresher.testing import InlineCache
from tests.integration.topologies.conftest import KEYS, NAMESPACE, TIMEOUT_SECONDS, WITH_REPLICAS_SECONDS, MakeReader
from tests.servers.redis_cluster import Cluster
from tests.servers.redis_sentinels import Sentinels
from tests.support.fake_worker import WorkedKey

VERSIONS = (1, 2, 3)


@pytest.fixture(params=["cluster", "sentinels"])
def url(request: pytest.FixtureRequest) -> str:
    server: Cluster | Sentinels = request.getfixturevalue(request.param)
    return server.url()


@pytest.fixture
def tagged(url: str) -> Iterator[InlineCache]:
    with InlineCache(redis_url=url) as cache:
        cache.answer("doubled", lambda n: 2 * n, ttl="5m", grace="1h", tags=lambda value, n: ["all", f"digit:{n % 10}"])
        yield cache


def states(cache: InlineCache) -> list[EntryState]:
    return [cache.client.get_entry("doubled", {"n": n}).state for n in KEYS]


def test_a_tag_invalidation_reaches_the_entries_of_all_nodes(tagged: InlineCache) -> None:
    assert set(states(tagged)) == {EntryState.MISS}
    assert tagged.client.invalidate_tags(["digit:3", "digit:4"]) == TagInvalidation(6, is_finished=True)
    assert [n for n, state in zip(KEYS, states(tagged), strict=True) if state is EntryState.STALE] == [
        n for n in KEYS if n % 10 in {3, 4}
    ]
    assert set(states(tagged)) == {EntryState.FRESH}, "refreshed, and registered anew"
    assert tagged.client.invalidate_tags(["all"], hard=True).entries == len(KEYS)
    assert set(states(tagged)) == {EntryState.MISS}


def test_a_tag_invalidation_that_nobody_waits_for_is_finished_by_a_worker(tagged: InlineCache) -> None:
    assert set(states(tagged)) == {EntryState.MISS}
    tagged.client.invalidate_tags(["all"], wait=False)
    tagged.advance("1s")
    assert set(states(tagged)) == {EntryState.STALE}


def test_tags_are_spread_over_the_nodes(cluster: Cluster) -> None:
    assert len({cluster.node_of(tag_index_key("test", f"tag-{n}")) for n in range(30)}) == len(cluster.nodes)


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
