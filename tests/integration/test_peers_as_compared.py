"""Claims of docs/explanation/comparison.md on an invalidation in the middle of a load, measured on installed peers.

*Lost*: the value that was read before the invalidation is stored after it, and counts as fresh.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest

from api_client import CacheClient, EntryState
from refresher.embedded import RedisServer
from refresher.testing import InlineCache
from tests.support.waiting import MAX_WAIT_SECONDS

Read: TypeAlias = Callable[[], Awaitable[str]]
Invalidate: TypeAlias = Callable[[], Awaitable[Any]]


@dataclass
class Origin:
    """The origin of the value. The first load is held after it has read."""

    value: str = "old"
    loads: int = 0
    has_read: threading.Event = field(default_factory=threading.Event)
    may_end: threading.Event = field(default_factory=threading.Event)

    def load(self) -> str:
        self.loads += 1
        seen = self.value
        if self.loads == 1:
            self.has_read.set()
            assert self.may_end.wait(MAX_WAIT_SECONDS)
        return seen

    async def aload(self) -> str:
        return await asyncio.to_thread(self.load)


def dogpile(origin: Origin) -> tuple[Read, Invalidate]:
    region = pytest.importorskip("dogpile.cache").make_region().configure("dogpile.cache.memory", expiration_time=3600)
    return (
        lambda: asyncio.to_thread(region.get_or_create, "key", origin.load),
        lambda: asyncio.to_thread(region.delete, "key"),
    )


def dogpile_region(origin: Origin) -> tuple[Read, Invalidate]:
    region = pytest.importorskip("dogpile.cache").make_region().configure("dogpile.cache.memory", expiration_time=3600)
    return (
        lambda: asyncio.to_thread(region.get_or_create, "key", origin.load),
        lambda: asyncio.to_thread(region.invalidate),
    )


def cashews(origin: Origin, strategy: str, **times: str) -> tuple[Read, Invalidate]:
    cache = pytest.importorskip("cashews").Cache()
    cache.setup("mem://")

    @getattr(cache, strategy)(ttl="1h", key="key", tags=["tag"], **times)  # type: ignore[untyped-decorator, unused-ignore]
    async def read() -> str:
        return await origin.aload()

    return read, lambda: cache.delete_tags("tag")


def cashews_early(origin: Origin) -> tuple[Read, Invalidate]:
    return cashews(origin, "early", early_ttl="50m")


def cashews_soft(origin: Origin) -> tuple[Read, Invalidate]:
    return cashews(origin, "soft", soft_ttl="50m")


def aiocache(origin: Origin) -> tuple[Read, Invalidate]:
    package = pytest.importorskip("aiocache")

    @package.cached_stampede(ttl=3600, lease=60, key_builder=lambda *_: "key")  # type: ignore[untyped-decorator, unused-ignore]
    async def read() -> str:
        return await origin.aload()

    return read, lambda: read.cache.delete("key")


@pytest.mark.parametrize("peer", [dogpile, dogpile_region, cashews_early, cashews_soft, aiocache])
async def test_a_peer_loses_an_invalidation_during_a_load(peer: Callable[[Origin], tuple[Read, Invalidate]]) -> None:
    origin = Origin()
    read, invalidate = peer(origin)
    loading = asyncio.create_task(read())  # type: ignore[arg-type]
    assert await asyncio.to_thread(origin.has_read.wait, MAX_WAIT_SECONDS)
    origin.value = "new"
    await invalidate()
    origin.may_end.set()
    assert await loading == "old"
    assert await read() == "old"
    assert origin.loads == 1


@pytest.mark.parametrize("by_tag", [False, True], ids=["by key", "by tag"])
def test_this_cache_does_not_lose_an_invalidation_during_a_load(redis_server: RedisServer, by_tag: bool) -> None:
    origin = Origin()
    with InlineCache(redis_url=redis_server.url()) as cache, ThreadPoolExecutor(1) as thread:
        cache.answer("key", origin.load, ttl="1h", grace="1h", tags=["tag"])
        loading = thread.submit(cache.client.get, "key")
        assert origin.has_read.wait(MAX_WAIT_SECONDS)
        origin.value = "new"
        with CacheClient(cache.client.settings) as writer:
            writer.invalidate_tags(["tag"]) if by_tag else writer.invalidate("key")
        origin.may_end.set()
        loading.result()
        entry = cache.client.get_entry("key")
        assert (entry.value, entry.state, origin.loads) == ("new", EntryState.FRESH, 2)
