"""Tags behind Sentinels and on a cluster, where a tag and the entries that have it are on different nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from api_client import EntryState, TagInvalidation
from api_client.protocol.keys import tag_index_key
from refresher.testing import InlineCache
from tests.integration.topologies.conftest import KEYS
from tests.servers.redis_cluster import Cluster
from tests.servers.redis_sentinels import Sentinels


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


def test_an_async_tag_invalidation_reaches_the_entries_of_all_nodes(url: str) -> None:
    asyncio.run(_invalidated_by_a_coroutine(url))


async def _invalidated_by_a_coroutine(url: str) -> None:
    async with InlineCache(redis_url=url) as cache:
        cache.answer("doubled", lambda n: 2 * n, ttl="5m", grace="1h", tags=["all"])
        for n in KEYS:
            await cache.async_client.get("doubled", {"n": n})
        assert (await cache.async_client.invalidate_tags(["all"])).entries == len(KEYS)
        assert (await cache.async_client.get_entry("doubled", {"n": 1})).state is EntryState.STALE


def test_a_tag_invalidation_that_nobody_waits_for_is_finished_by_a_worker(tagged: InlineCache) -> None:
    assert set(states(tagged)) == {EntryState.MISS}
    tagged.client.invalidate_tags(["all"], wait=False)
    tagged.advance("1s")
    assert set(states(tagged)) == {EntryState.STALE}


def test_tags_are_spread_over_the_nodes(cluster: Cluster) -> None:
    assert len({cluster.node_of(tag_index_key("test", f"tag-{n}")) for n in range(30)}) == len(cluster.nodes)
