"""The tag scripts, each on its own: what they store, and when it expires."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from api_client.protocol import tags
from api_client.protocol.keys import (
    CacheKey,
    key_of_member,
    make_key,
    pending_tags_key,
    tag_clock_key,
    tag_index_key,
    tag_member,
    tag_state_key,
)
from api_client.protocol.tags import PENDING_SECONDS, TagWalk
from api_client.transport.scripts import drive
from tests.support.lease_world import RETENTION_SECONDS, ClockedWorld, World
from tests.support.redis_memory import full

NAMESPACE = "test"
STATE_KEPT_SECONDS = 7_200
_numbers = itertools.count(1)


@pytest.fixture
def tag() -> str:
    return f"tag-{next(_numbers)}"


@pytest.fixture
def namespace(client: redis.Redis) -> Iterator[str]:
    """A namespace whose tag clock and pending invalidations are the test's own."""
    name = f"tags-{next(_numbers)}"
    yield name
    client.delete(tag_clock_key(name), pending_tags_key(name))


def keys(count: int) -> list[CacheKey]:
    return [make_key(NAMESPACE, "tagged", {"tagged": next(_numbers)}, 1) for _ in range(count)]


def register(world: World, key: CacheKey, tag: str, lives_seconds: float = 1_000.0) -> tags.TagReply:
    return world.store.run(tags.register(key, tag, lives_seconds=lives_seconds))


def mark(world: World, tag: str, number: int, *, hard: bool = False, bookmarks: tuple[str, ...] = ()) -> int:
    return world.store.run(tags.mark(NAMESPACE, tag, number=number, hard=hard, bookmarks=bookmarks))


def page(world: World, tag: str, cursor: int | None, limit: int = 2) -> list[bytes]:
    found = world.store.run(tags.page(NAMESPACE, tag, number=7, cursor=cursor, limit=limit))
    return [member for member, _ in found]


def walk(world: World, *names: str, **options: Any) -> tuple[int, list[str]]:
    """Invalidate tags; return the number of entries, and the scripts that were run."""
    scripts: list[str] = []

    def run(calls: Any) -> list[Any]:
        scripts.extend(call.script for call in calls)
        return world.store.run_all(calls)

    rounds = TagWalk(NAMESPACE, retention_seconds=RETENTION_SECONDS).invalidate(names, **options)
    return drive(rounds, run), scripts


def test_each_tick_of_the_tag_clock_is_larger_and_is_its_new_reading(world: World, namespace: str) -> None:
    assert world.store.run(tags.read_clock(namespace)) == 0
    before_us = world.now_us()
    first = world.store.run(tags.tick(namespace))
    assert before_us <= first <= world.now_us()
    assert world.store.run(tags.tick(namespace)) > first
    raised = world.store.run(tags.tick(namespace, at_least=first * 2))
    assert raised == first * 2
    assert world.store.run(tags.tick(namespace)) == raised + 1, "beyond Redis' clock it counts"
    assert world.store.run(tags.read_clock(namespace)) == raised + 1


@pytest.mark.parametrize("garbage", [b"x", b"-1", b"1e300", b"", b"9007199254740992"])
def test_a_tag_clock_with_a_garbage_value_restarts_at_redis_time(world: World, namespace: str, garbage: bytes) -> None:
    world.client.set(tag_clock_key(namespace), garbage)
    assert world.store.run(tags.read_clock(namespace)) == 0
    before_us = world.now_us()
    assert before_us <= world.store.run(tags.tick(namespace)) <= world.now_us()


def test_the_tag_clock_keeps_counting_after_redis_clock_was_set_back(clocked_world: ClockedWorld) -> None:
    first = clocked_world.store.run(tags.tick(NAMESPACE))
    clocked_world.pass_time(-3_600)
    assert clocked_world.store.run(tags.tick(NAMESPACE)) == first + 1
    clocked_world.pass_time(3_600)


def test_a_registration_returns_the_marks_of_its_tag(world: World, tag: str) -> None:
    (key,) = keys(1)
    before = register(world, key, tag)
    assert (before.last, before.hard, before.bookmarks) == (0, 0, ())
    assert abs(before.now_us - world.now_us()) < 60_000_000
    assert mark(world, tag, 5, bookmarks=("a", "b")) == 5
    soft = register(world, key, tag)
    assert (soft.last, soft.hard) == (5, 0)
    assert mark(world, tag, 9, hard=True, bookmarks=("b",)) == 9
    assert mark(world, tag, 7, hard=True) == 9, "numbers only grow, whatever the order"
    reply = register(world, key, tag)
    assert (reply.last, reply.hard, reply.bookmarks) == (9, 9, ("a", "b"))
    assert world.client.zcard(tag_index_key(NAMESPACE, tag)) == 1


def test_bookmarks_of_a_tag_are_kept_for_ten_to_twenty_minutes(clocked_world: ClockedWorld, tag: str) -> None:
    (key,) = keys(1)
    mark(clocked_world, tag, 5, bookmarks=("old",))
    clocked_world.pass_time(601)
    mark(clocked_world, tag, 6, bookmarks=("new",))
    assert register(clocked_world, key, tag).bookmarks == ("old", "new")
    clocked_world.pass_time(601)
    assert register(clocked_world, key, tag).bookmarks == ("new",)
    clocked_world.pass_time(601)
    assert register(clocked_world, key, tag).bookmarks == ()


def test_a_tag_member_is_kept_for_the_longest_lifetime_that_a_worker_registered(
    clocked_world: ClockedWorld, tag: str
) -> None:
    (key,) = keys(1)
    index = tag_index_key(NAMESPACE, tag)
    register(clocked_world, key, tag, lives_seconds=100)
    assert clocked_world.client.zscore(index, tag_member(key)) == clocked_world.now_us() + 100_000_000
    register(clocked_world, key, tag, lives_seconds=10)
    assert clocked_world.client.zscore(index, tag_member(key)) == clocked_world.now_us() + 100_000_000


def test_expired_tag_members_are_swept_by_registrations_and_by_workers(clocked_world: ClockedWorld, tag: str) -> None:
    index, state = tag_index_key(NAMESPACE, tag), tag_state_key(NAMESPACE, tag)
    for key in keys(25):
        register(clocked_world, key, tag, lives_seconds=100)
    mark(clocked_world, tag, 5)
    clocked_world.pass_time(101)
    (key,) = keys(1)
    register(clocked_world, key, tag, lives_seconds=100)
    assert clocked_world.client.zcard(index) == 16, "ten with each registration"
    assert clocked_world.store.run(tags.sweep(index, state, limit=10)) == 10
    assert clocked_world.store.run(tags.sweep(index, state, limit=10)) == 5
    assert clocked_world.client.zrange(index, 0, -1) == [tag_member(key)]
    clocked_world.pass_time(STATE_KEPT_SECONDS - 102)
    clocked_world.store.run(tags.sweep(index, state, limit=10))
    assert (clocked_world.client.exists(index), clocked_world.client.exists(state)) == (0, 1)
    clocked_world.pass_time(1)
    clocked_world.store.run(tags.sweep(index, state, limit=10))
    assert not clocked_world.client.exists(state)


def test_a_tag_that_was_never_invalidated_is_swept_too(clocked_world: ClockedWorld, tag: str) -> None:
    index, state = tag_index_key(NAMESPACE, tag), tag_state_key(NAMESPACE, tag)
    register(clocked_world, keys(1)[0], tag, lives_seconds=100)
    clocked_world.pass_time(101)
    assert clocked_world.store.run(tags.sweep(index, state, limit=10)) == 1
    assert not clocked_world.client.exists(index)


def test_a_tag_clock_of_another_type_is_replaced(world: World, namespace: str) -> None:
    world.client.hset(tag_clock_key(namespace), "a", "b")
    assert world.store.run(tags.read_clock(namespace)) == 0
    assert world.store.run(tags.tick(namespace)) == world.store.run(tags.read_clock(namespace)) > 0


def test_the_keys_of_tags_have_no_expiry(world: World, tag: str) -> None:
    (key,) = keys(1)
    register(world, key, tag)
    walk(world, tag, wait=False)
    names = [tag_index_key(NAMESPACE, tag), tag_state_key(NAMESPACE, tag), tag_clock_key(NAMESPACE)]
    assert [world.client.pttl(name) for name in [*names, pending_tags_key(NAMESPACE)]] == [-1] * 4
    world.client.delete(pending_tags_key(NAMESPACE))


def test_an_index_of_another_type_is_replaced(world: World, tag: str) -> None:
    (key,) = keys(1)
    world.client.set(tag_index_key(NAMESPACE, tag), "x")
    register(world, key, tag)
    assert world.client.zrange(tag_index_key(NAMESPACE, tag), 0, -1) == [tag_member(key)]


def test_an_index_that_cannot_grow_is_an_error(world: World, tag: str) -> None:
    (key,) = keys(1)
    with full(world.client), pytest.raises(redis.ResponseError, match="maxmemory"):
        register(world, key, tag)


def test_an_interrupted_walk_resumes_at_its_cursor(world: World, tag: str) -> None:
    members = [tag_member(key) for key in keys(4)]
    world.client.zadd(tag_index_key(NAMESPACE, tag), {member: place for place, member in enumerate(members, 1)})
    assert page(world, tag, None) == members[:2]
    assert page(world, tag, None) == members[:2], "its first page was not done"
    assert page(world, tag, 3) == members[2:]
    other = world.store.run(tags.page(NAMESPACE, tag, number=8, cursor=None, limit=2))
    assert [member for member, _ in other] == members[:2], "another invalidation begins at the beginning"
    assert page(world, tag, None) == members[2:], "members before the cursor are done"
    assert page(world, tag, 4) == members[3:], "after the last page the next walk starts over"
    assert page(world, tag, None) == members[:2]
    assert world.client.hgetall(tag_state_key(NAMESPACE, tag)) == {}


@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 250])
@pytest.mark.parametrize("are_alike", [False, True], ids=["apart", "at one time"])
def test_a_walk_reaches_every_member_once(world: World, tag: str, count: int, are_alike: bool) -> None:
    members = {tag_member(key): 5 if are_alike else 5 + place // 2 for place, key in enumerate(keys(count))}
    if members:
        world.client.zadd(tag_index_key(NAMESPACE, tag), members)
    touched: list[bytes] = []
    rounds = TagWalk(NAMESPACE, retention_seconds=60, touched=lambda key: touched.append(tag_member(key)))
    assert drive(rounds.invalidate([tag]), world.store.run_all) == count
    assert sorted(touched) == sorted(members)
    assert set(world.client.hgetall(tag_state_key(NAMESPACE, tag))) == {b"last", b"marked"}, "no cursor is left"
    assert not world.client.exists(pending_tags_key(NAMESPACE))


def test_a_key_with_several_of_the_tags_is_invalidated_once(world: World, tag: str) -> None:
    (key,) = keys(1)
    for name in (tag, f"{tag}-2"):
        register(world, key, name)
    entries, scripts = walk(world, tag, f"{tag}-2")
    assert (entries, scripts.count("invalidate")) == (1, 1)


def test_the_steps_of_a_tag_invalidation_in_order(world: World, tag: str) -> None:
    (key,) = keys(1)
    register(world, key, tag)
    assert walk(world, tag)[1] == [
        "tag_tick", "tag_keep", "tag_mark", "tag_keep", "tag_page", "invalidate", "tag_finish",
    ]  # fmt: skip
    assert walk(world, tag, wait=False)[1] == ["tag_tick", "tag_keep", "tag_mark"]
    world.client.delete(pending_tags_key(NAMESPACE))
    assert walk(world)[1] == [], "no tags, no step"


def test_garbage_in_a_tag_index_or_among_pending_invalidations_is_skipped(
    world: World, tag: str, namespace: str
) -> None:
    (key,) = keys(1)
    register(world, key, tag)
    world.client.zadd(tag_index_key(NAMESPACE, tag), {b"x": 1, b"": 2, b"q:0:" + bytes(16): 3, b"q:1:short": 4})
    assert walk(world, tag)[0] == 1
    world.client.zadd(pending_tags_key(namespace), {b"garbage": 1})
    kept = world.store.run(tags.take(namespace))
    assert drive(TagWalk(namespace, retention_seconds=60).resume(kept), world.store.run_all) == 0
    assert not world.client.exists(pending_tags_key(namespace))


def test_a_pending_invalidation_is_taken_over_when_its_lease_has_expired(clocked_world: ClockedWorld) -> None:
    run = clocked_world.store.run
    assert run(tags.keep(NAMESPACE, b"one", lease_seconds=PENDING_SECONDS)) == 1
    assert run(tags.take(NAMESPACE)) == b""
    clocked_world.pass_time(PENDING_SECONDS - 1)
    run(tags.keep(NAMESPACE, b"one", lease_seconds=PENDING_SECONDS, renew=True))
    clocked_world.pass_time(PENDING_SECONDS - 1)
    assert run(tags.take(NAMESPACE)) == b"", "it was renewed"
    clocked_world.pass_time(1)
    assert run(tags.take(NAMESPACE)) == b"one"
    until_us = clocked_world.client.zscore(pending_tags_key(NAMESPACE), "one")
    assert until_us == clocked_world.now_us() + PENDING_SECONDS * 1_000_000
    assert run(tags.take(NAMESPACE)) == b"", "another worker has it"
    run(tags.finish(NAMESPACE, b"one"))
    run(tags.keep(NAMESPACE, b"one", lease_seconds=PENDING_SECONDS, renew=True))
    clocked_world.pass_time(100)
    assert run(tags.take(NAMESPACE)) == b"", "renewed after its end it is not there again"


def test_a_pending_invalidation_is_taken_over_after_the_clock_was_set_back(clocked_world: ClockedWorld) -> None:
    clocked_world.store.run(tags.keep(NAMESPACE, b"two", lease_seconds=PENDING_SECONDS))
    clocked_world.pass_time(-0.5)
    assert clocked_world.store.run(tags.take(NAMESPACE)) == b"", "clocks are corrected by fractions of a second"
    clocked_world.pass_time(-3_600)
    assert clocked_world.store.run(tags.take(NAMESPACE)) == b"two"
    clocked_world.store.run(tags.finish(NAMESPACE, b"two"))
    clocked_world.pass_time(3_600.5)


def test_two_invalidations_of_a_tag_are_pending_independently(world: World, tag: str) -> None:
    """The end of one does not end the other, which nothing would finish then."""
    walk(world, tag, wait=False)
    walk(world, tag)
    assert world.client.zcard(pending_tags_key(NAMESPACE)) == 1
    world.client.delete(pending_tags_key(NAMESPACE))


def test_a_tag_member_identifies_its_key() -> None:
    key = make_key(NAMESPACE, "a.query-1", {"n": 1}, 65_535)
    found = key_of_member(NAMESPACE, tag_member(key))
    assert (found.entry, found.record, found.channel) == (key.entry, key.record, key.channel)
