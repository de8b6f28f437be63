"""Tags through the reader, the worker's flow and a real Redis, as an application uses them."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
import redis

from api_client import (
    CacheUnavailable,
    EntryState,
    InvalidQuery,
    ReaderEvents,
    ReaderSettings,
    TagInvalidation,
    ainvalidate_tags,
    get_cached,
    invalidate_tags,
)
from api_client.protocol.keys import pending_tags_key
from refresher.embedded import RedisServer, free_port
from refresher.flow.outcome import OutcomeKind
from refresher.flow.run import MAX_BOOKMARKS_KEPT
from refresher.settings import WorkerSettings
from refresher.testing import InlineCache
from refresher.worker import tag_upkeep
from refresher.worker.redis_link import RetryingLink
from refresher.worker.tag_upkeep import TagUpkeep
from tests.support.any_reader import KINDS
from tests.support.event_recorder import EventRecorder
from tests.support.waiting import MAX_WAIT_SECONDS

pytestmark = pytest.mark.usefixtures("published_once")


def friends(cache: InlineCache, graph: dict[int, list[int]]) -> None:
    cache.answer(
        "friends_of", lambda person_id: graph[person_id], ttl="5m", grace="1h",
        tags=lambda value, person_id: [f"person:{person_id}", *(f"person:{friend}" for friend in value)],
    )  # fmt: skip


def states(cache: InlineCache, *people: int) -> list[EntryState]:
    return [cache.client.get_entry("friends_of", {"person_id": person}).state for person in people]


def test_invalidating_a_tag_makes_every_value_with_it_stale_and_no_other(cache: InlineCache) -> None:
    graph = {1: [2, 3], 2: [1], 3: [1], 4: []}
    friends(cache, graph)
    assert [get_cached("friends_of", {"person_id": person}) for person in graph] == [[2, 3], [1], [1], []]
    graph[2] = [1, 4]
    assert invalidate_tags(["person:2"]) == TagInvalidation(2, is_finished=True)
    assert states(cache, 1, 2, 3, 4) == [EntryState.STALE, EntryState.STALE, EntryState.FRESH, EntryState.FRESH]
    assert get_cached("friends_of", {"person_id": 2}) == [1, 4], "refreshed meanwhile"
    assert invalidate_tags(["person:4"]) == TagInvalidation(2, is_finished=True), "the new value's tags"


def test_a_hard_invalidation_of_a_tag_drops_its_values(cache: InlineCache) -> None:
    friends(cache, {1: [2]})
    get_cached("friends_of", {"person_id": 1})
    assert invalidate_tags(["person:2", "person:1", "nobody"], hard=True).entries == 1
    assert cache.client.get_entry("friends_of", {"person_id": 1}).state is EntryState.MISS


async def test_tags_can_be_invalidated_by_a_coroutine(redis_server: RedisServer) -> None:
    async with InlineCache(redis_url=redis_server.url()) as cache:
        friends(cache, {1: [2]})
        await cache.async_client.get("friends_of", {"person_id": 1})
        assert await ainvalidate_tags(["person:2"]) == TagInvalidation(1, is_finished=True)
        entry = await cache.async_client.get_entry("friends_of", {"person_id": 1})
        assert entry.state is EntryState.STALE
        await ainvalidate_tags(["person:2"], hard=True)
        assert (await cache.async_client.get_entry("friends_of", {"person_id": 1})).state is EntryState.MISS


def test_a_tag_invalidation_during_a_load_stores_a_stale_value_and_triggers_another_load(cache: InlineCache) -> None:
    loads: list[int] = []

    def load() -> int:
        loads.append(1)
        if len(loads) == 1:
            invalidate_tags(["counter"])
        return len(loads)

    cache.answer("counted", load, ttl="5m", grace="1h", tags=["counter"])
    get_cached("counted")  # the first value, or already the second one
    assert [outcome.kind for outcome in cache.outcomes] == [OutcomeKind.COMMITTED, OutcomeKind.COMMITTED_AS_STALE]
    assert get_cached("counted") == 2


def test_a_tag_invalidation_without_waiting_is_kept_and_finished_by_a_worker(cache: InlineCache) -> None:
    friends(cache, {1: [2]})
    get_cached("friends_of", {"person_id": 1})
    assert invalidate_tags(["person:2"], wait=False) == TagInvalidation(0, is_finished=False)
    assert states(cache, 1) == [EntryState.FRESH]
    cache.advance("1s")
    assert states(cache, 1) == [EntryState.STALE]


def test_bookmarks_of_a_tag_invalidation_reach_the_next_loads(cache: InlineCache) -> None:
    friends(cache, {1: [2], 2: [1]})
    get_cached("friends_of", {"person_id": 1})
    invalidate_tags(["person:2"], bookmarks=["FB:1"])
    get_cached("friends_of", {"person_id": 1})
    assert cache.client.get_entry("friends_of", {"person_id": 1}).bookmarks == ("FB:1",)
    # A key that had no entry: its load was not given the bookmark, and may have read from a follower that lags.
    get_cached("friends_of", {"person_id": 2})
    assert [outcome.kind for outcome in cache.outcomes[-2:]] == [
        OutcomeKind.COMMITTED, OutcomeKind.COMMITTED_AS_STALE,
    ]  # fmt: skip
    assert cache.client.get_entry("friends_of", {"person_id": 2}).bookmarks == ("FB:1",)


@pytest.mark.parametrize("invalidations", [1, MAX_BOOKMARKS_KEPT // 2, MAX_BOOKMARKS_KEPT])
def test_invalidations_with_bookmarks_make_neither_a_large_entry_nor_second_loads(
    cache: InlineCache, invalidations: int
) -> None:
    loads: list[int] = []
    cache.answer("q", lambda: loads.append(1), ttl="5m", grace="1h", tags=["one", "other"])
    cache.client.get("q")
    for number in range(invalidations):
        for tag in ("one", "other"):
            invalidate_tags([tag], bookmarks=[f"FB:{tag}-{number}"])
    for _ in range(4):
        cache.client.get("q")
        kept = cache.client.get_entry("q").bookmarks
        assert len(kept) == min(2 * invalidations, MAX_BOOKMARKS_KEPT)
        assert kept[-2:] == (f"FB:one-{invalidations - 1}", f"FB:other-{invalidations - 1}")
        cache.advance("6m")
    assert len(loads) == 1 + 4


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"tags": "person:1"}, "tags of type str"),
        ({"tags": [1]}, "a tag of type int"),
        ({"tags": ["x" * 201]}, "a tag of 201 bytes"),
        ({"tags": [str(n) for n in range(65)]}, "more than 64 tags"),
        ({"tags": ["x"], "hard": "no"}, "hard='no'"),
        ({"tags": ["x"], "wait": 1}, "wait=1"),
        ({"tags": ["x"], "bookmarks": "FB:1"}, "bookmarks for"),
    ],
)
def test_invalid_arguments_of_invalidate_tags_are_refused_before_anything_is_sent(
    arguments: dict[str, Any], says: str, kind: str
) -> None:
    settings = ReaderSettings(redis_url=f"redis://127.0.0.1:{free_port()}/0", broker_url="redis://127.0.0.1:1/1")
    with closing(KINDS[kind](settings, ReaderEvents())) as client:
        with pytest.raises(InvalidQuery, match=says):
            client.invalidate_tags(**arguments)
        assert client.invalidate_tags([]) == TagInvalidation(0, is_finished=True), "nothing is sent"
        with pytest.raises(CacheUnavailable):
            client.invalidate_tags(["x"])


def test_upkeep_removes_the_expired_members_of_all_tags(
    clean_redis: RedisServer, control: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tag_upkeep, "SCAN_COUNT", 1)
    monkeypatch.setattr(tag_upkeep, "SWEPT_AT_ONCE", 3)
    link = RetryingLink(clean_redis.url())
    for tag in range(20):
        control.zadd(f"here:t1:{{{tag}}}", {f"q:1:{member:016}": member + 1 for member in range(10)})
        control.hset(f"here:g1:{{{tag}}}", mapping={"last": 5, "marked": 1})
    control.zadd("here:t1:{live}", {"q:1:0123456789abcdef": 2e15})
    control.zadd("there:t1:{x}", {"q:1:0123456789abcdef": 1})
    upkeep = TagUpkeep(WorkerSettings(redis_url=clean_redis.url(), namespace="here"))
    for _ in range(100):
        upkeep(link)
    assert sorted(control.scan_iter()) == [b"here:t1:{live}", b"there:t1:{x}"]
    link.close()


def test_tags_are_swept_even_where_no_pending_invalidation_can_be_finished(
    clean_redis: RedisServer, control: redis.Redis
) -> None:
    control.set(pending_tags_key("here"), "of another type")
    control.zadd("here:t1:{tag}", {"q:1:0123456789abcdef": 1})
    with closing(RetryingLink(clean_redis.url())) as link, pytest.raises(CacheUnavailable):
        TagUpkeep(WorkerSettings(redis_url=clean_redis.url(), namespace="here"))(link)
    assert not control.exists("here:t1:{tag}")


def test_each_invalidation_is_recorded_once_it_is_finished(redis_server: RedisServer, kind: str) -> None:
    events = EventRecorder()
    settings = ReaderSettings(
        redis_url=redis_server.url(), broker_url="redis://127.0.0.1:1/1", namespace="recorded",
        redis_timeout_seconds=MAX_WAIT_SECONDS,
    )  # fmt: skip
    with closing(KINDS[kind](settings, events)) as client:
        client.invalidate_tags(["x"], wait=False)
        client.invalidate_tags(["x"], hard=True)
        client.invalidate_tags(["x", "y"])
    assert events.recorded == [("tags invalidated", "hard", "0"), ("tags invalidated", "soft", "0")]
