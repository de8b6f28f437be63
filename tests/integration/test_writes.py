"""`writes`: invalidations after the commit, none after a rollback, and all where the commit failed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from api_client import CacheUnavailable, EntryState, InvalidQuery
from api_client.read.requirements import MAX_BOOKMARK_CHARACTERS
from refresher.embedded import RedisServer
from refresher.testing import InlineCache
from tests.support.internals import link_of


class ReplicationFailed(Exception):
    """An error of a cluster's server that leaves open whether the others have the transaction."""

    code = "Neo.TransientError.Cluster.ReplicationFailure"


class Graph:
    """A session of a graph with one value, and its transaction; ``fails`` is what the commit raises."""

    def __init__(self) -> None:
        self.value, self.pending = "old", ""
        self.fails: BaseException | None = None
        self.bookmark = "FB:7"
        self.log: list[str] = []

    def begin_transaction(self) -> Graph:
        self.log.append("begin")
        return self

    def write(self) -> None:
        self.pending = "new"

    def commit(self) -> None:
        self.log.append("commit")
        self.value = self.pending
        if self.fails is not None:
            raise self.fails

    def close(self) -> None:
        self.log.append("close")

    def last_bookmarks(self) -> Any:
        return SimpleNamespace(raw_values=frozenset({self.bookmark}))


class AsyncGraph:
    """The same with coroutines."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.committed = asyncio.Event()

    async def begin_transaction(self) -> AsyncGraph:
        self._graph.begin_transaction()
        return self

    def write(self) -> None:
        self._graph.write()

    async def commit(self) -> None:
        self.committed.set()
        self._graph.commit()

    async def close(self) -> None:
        self._graph.close()

    async def last_bookmarks(self) -> Any:
        return self._graph.last_bookmarks()


@pytest.fixture
def graph() -> Graph:
    return Graph()


@pytest.fixture
def cache(redis_server: RedisServer, graph: Graph) -> Iterator[InlineCache]:
    with InlineCache(redis_url=redis_server.url()) as entered:
        entered.answer("by_tag", lambda: graph.value, ttl="5m", grace="1h", tags=["value"])
        entered.answer("by_key", lambda n: graph.value, ttl="5m", grace="1h")
        yield entered


def states(cache: InlineCache) -> list[EntryState]:
    return [cache.client.get_entry(query, params).state for query, params in (("by_tag", None), ("by_key", {"n": 1}))]


def write(cache: InlineCache, graph: Graph, block: Callable[[Any], object], *, awaited: bool, **options: Any) -> None:
    given = {"tags": ["value"], "keys": [("by_key", {"n": 1})], **options}

    async def writes() -> None:
        async with cache.async_client.writes(AsyncGraph(graph), **given) as tx:
            block(tx)
        await cache.async_client.close()

    if awaited:
        asyncio.run(writes())
        return
    with cache.client.writes(graph, **given) as tx:
        block(tx)


both = pytest.mark.parametrize("awaited", [False, True], ids=["sync", "async"])


@both
@pytest.mark.parametrize("hard", [False, True], ids=["soft", "hard"])
def test_a_commit_invalidates_tags_and_keys_with_the_session_s_bookmarks(
    cache: InlineCache, graph: Graph, awaited: bool, hard: bool
) -> None:
    assert states(cache) == [EntryState.MISS] * 2
    write(cache, graph, lambda tx: tx.write(), awaited=awaited, hard=hard)
    assert graph.log == ["begin", "commit"]
    assert states(cache) == [EntryState.MISS if hard else EntryState.STALE] * 2
    entry = cache.client.get_entry("by_tag")
    assert (entry.value, entry.bookmarks) == ("new", ("FB:7",))
    assert cache.client.get_entry("by_key", {"n": 1}).bookmarks == ("FB:7",)


@both
def test_a_write_whose_bookmark_is_too_long_is_invalidated_without_it(
    cache: InlineCache, graph: Graph, awaited: bool
) -> None:
    states(cache)
    graph.bookmark = "b" * (MAX_BOOKMARK_CHARACTERS + 1)
    with pytest.raises(InvalidQuery, match=rf"bookmarks for 'writes': .* 1 to {MAX_BOOKMARK_CHARACTERS} "):
        write(cache, graph, lambda tx: tx.write(), awaited=awaited)
    assert states(cache) == [EntryState.STALE] * 2
    assert cache.client.get_entry("by_tag").bookmarks == ()


def _raises(_: Any) -> None:
    raise KeyError("of the block")


@both
def test_after_a_rollback_nothing_is_invalidated(cache: InlineCache, graph: Graph, awaited: bool) -> None:
    states(cache)
    with pytest.raises(KeyError, match="of the block"):
        write(cache, graph, _raises, awaited=awaited)
    assert graph.log == ["begin", "close"]
    assert states(cache) == [EntryState.FRESH] * 2


@both
@pytest.mark.parametrize("error", [OSError("lost"), ReplicationFailed(), KeyboardInterrupt()])
def test_a_failed_commit_invalidates_all_since_it_may_have_taken_effect(
    cache: InlineCache, graph: Graph, awaited: bool, error: BaseException
) -> None:
    states(cache)
    graph.fails = error
    with pytest.raises(type(error)):
        write(cache, graph, lambda tx: tx.write(), awaited=awaited)
    assert states(cache) == [EntryState.STALE] * 2


@both
@pytest.mark.parametrize(
    "options",
    [
        {"tags": "value"}, {"tags": [1]}, {"tags": iter(["value"])}, {"hard": "no"},
        {"keys": [("no name", None)]}, {"keys": ["by_key"]}, {"keys": iter([("by_key", {"n": 1})])},
        {"keys": [("by_key", {"n": 1})] * 10_001},
    ],
    ids=["text", "no tag", "iterator of tags", "no flag", "no name", "no pair", "iterator of keys", "too many keys"],
)  # fmt: skip
def test_invalid_arguments_are_refused_before_the_transaction_begins(
    cache: InlineCache, graph: Graph, awaited: bool, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidQuery):
        write(cache, graph, lambda tx: tx.write(), awaited=awaited, **options)
    assert graph.log == []


@both
@pytest.mark.parametrize("kind", ["none", "of the other client"])
def test_a_session_that_this_client_cannot_use_is_refused(
    cache: InlineCache, graph: Graph, awaited: bool, kind: str
) -> None:
    other: Any = None if kind == "none" else graph if awaited else AsyncGraph(graph)

    async def writes_async() -> None:
        async with cache.async_client.writes(other, tags=["value"]):
            pytest.fail("the block has run")

    def writes() -> None:
        with cache.client.writes(other, tags=["value"]):
            pytest.fail("the block has run")

    wanted = "an AsyncSession" if awaited else "a Session"
    with pytest.raises(InvalidQuery, match=f"of type {type(other).__name__}: expected {wanted}, of the neo4j driver"):
        asyncio.run(writes_async()) if awaited else writes()
    assert graph.log in ([], ["begin", "close"]), "a transaction was left open"


def test_tags_added_within_the_block_are_invalidated_too(cache: InlineCache, graph: Graph) -> None:
    states(cache)
    tags: list[str] = []
    write(cache, graph, lambda tx: (tx.write(), tags.append("value")), awaited=False, tags=tags, keys=[])
    assert states(cache) == [EntryState.STALE, EntryState.FRESH]


@both
@pytest.mark.parametrize("added", [[1], [str(number) for number in range(64)]], ids=["no tag", "too many"])
def test_tags_added_within_the_block_are_checked_before_the_commit(
    cache: InlineCache, graph: Graph, awaited: bool, added: list[Any]
) -> None:
    tags = ["value"]
    with pytest.raises(InvalidQuery):
        write(cache, graph, lambda tx: (tx.write(), tags.extend(added)), awaited=awaited, tags=tags)
    assert (graph.value, graph.log) == ("old", ["begin", "close"])


@pytest.mark.parametrize("cancellations", [1, 2])
@pytest.mark.parametrize("turns", range(12))
def test_a_cancellation_after_the_commit_waits_for_the_invalidations(
    cache: InlineCache, graph: Graph, turns: int, cancellations: int
) -> None:
    states(cache)

    async def writes(session: AsyncGraph) -> None:
        client = cache.async_client
        await client.get("by_key", {"n": 1})  # connected
        async with client.writes(session, tags=["value"], keys=[("by_key", {"n": 1})]) as tx:
            tx.write()

    async def cancel() -> None:
        session = AsyncGraph(graph)
        task = asyncio.create_task(writes(session))
        await session.committed.wait()
        for _ in range(cancellations):
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await cache.async_client.close()

    asyncio.run(cancel())
    assert states(cache) == [EntryState.STALE] * 2


def test_without_redis_the_write_is_committed_and_the_caller_gets_an_error(
    cache: InlineCache, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = link_of(cache.client)
    monkeypatch.setattr(link, "run_each", lambda calls: [CacheUnavailable("away")] * len(calls))
    for graph.bookmark in ("FB:7", "b" * (MAX_BOOKMARK_CHARACTERS + 1)):
        with pytest.raises(CacheUnavailable):
            write(cache, graph, lambda tx: tx.write(), awaited=False)
    assert graph.value == "new"
    graph.fails = OSError("lost")
    with suppress(OSError):
        write(cache, graph, lambda tx: tx.write(), awaited=False)
    assert graph.fails.__notes__ == ["the cache could not be invalidated: away"]
