"""Invalidations in each state, and every step repeated because its reply was lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from api_client.protocol import lease
from api_client.protocol.lease import AcquireStatus, ClaimStatus, CommitStatus
from tests.support.lease_world import World, a_header

OTHER = b"nonce--2"


@pytest.mark.parametrize("hard", [False, True])
def test_an_invalidation_without_an_entry_counts_for_the_next_load(world: World, hard: bool) -> None:
    generation = world.invalidate(hard=hard, bookmarks=["b1"])
    reply = world.acquire()
    assert (reply.generation, reply.bookmarks) == (generation, ("b1",))
    assert reply.token > generation


def test_a_soft_invalidation_only_makes_the_entry_stale(world: World) -> None:
    token = world.now_us()
    world.plant(token, bookmarks=("b0",))
    before_us = world.now_us()
    generation = world.invalidate()
    entry = world.entry()
    assert before_us <= entry.soft_expiry_us <= world.now_us()
    assert entry == a_header(
        token, bookmarks=("b0",), length=entry.length, generation=generation, soft_expiry_us=entry.soft_expiry_us
    )
    assert world.client.pttl(world.key.entry) > 0


@pytest.mark.parametrize("there", ["entry", "garbage", "list", "nothing"])
def test_a_hard_invalidation_deletes_the_entry(world: World, there: str) -> None:
    _ = {
        "entry": lambda: world.plant(100),
        "garbage": lambda: world.client.set(world.key.entry, b"\xc7X"),
        "list": lambda: world.client.lpush(world.key.entry, b"x"),
        "nothing": lambda: None,
    }[there]()
    world.invalidate(hard=True)
    assert world.client.exists(world.key.entry) == 0


@pytest.mark.promise("Protocol", "I3: a load in flight during an invalidation is stored as stale, or not at all")
@pytest.mark.parametrize(
    ("hard", "status"), [(False, CommitStatus.ACCEPTED_AS_STALE), (True, CommitStatus.INVALIDATED)]
)
@pytest.mark.parametrize("lapsed", [False, True])
def test_a_commit_after_a_soft_invalidation_is_stale_and_after_a_hard_one_rejected(
    world: World, hard: bool, status: CommitStatus, lapsed: bool
) -> None:
    token = world.acquire().token
    if lapsed:
        world.pass_time(10_000)
    generation, before_us = world.invalidate(hard=hard), world.now_us()
    assert world.commit(token) is status
    assert (world.entry() is not None) == (not hard)
    if not hard:
        assert world.entry().generation == generation > token
        assert before_us <= world.entry().soft_expiry_us <= world.now_us()
    assert world.state() == "invalidated"
    assert world.record().keys() & {"token", "nonce", "limit"} == set()
    assert world.claim(seen=0 if hard else token).status is ClaimStatus.CLAIMED
    assert world.acquire(OTHER).token > generation


@pytest.mark.parametrize("hard", [False, True])
def test_a_late_commit_after_an_invalidation_keeps_the_claim_made_meanwhile(world: World, hard: bool) -> None:
    token = world.acquire().token
    world.invalidate(hard=hard)
    world.pass_time(10_000)
    number = world.claim("second").number
    assert world.commit(token) is (CommitStatus.INVALIDATED if hard else CommitStatus.ACCEPTED_AS_STALE)
    assert (world.state(), world.record().keys() & {"token", "nonce", "limit", "attempts"}) == ("queued", set())
    assert world.claim("second").number == number
    assert world.acquire(OTHER, number=number).status is AcquireStatus.ACQUIRED


def test_an_invalidation_keeps_a_queued_claim_and_ends_a_pause_and_cooling(world: World) -> None:
    number = world.claim().number
    world.invalidate()
    assert (world.state(), world.claim("second").status) == ("queued", ClaimStatus.REFUSED)
    token = world.acquire(number=number).token
    world.retry(token)
    world.invalidate()
    assert (world.state(), world.record().keys() & {"ticket", "kind", "attempts"}) == ("invalidated", set())
    world.fail(world.acquire(OTHER).token, OTHER)
    world.invalidate()
    assert (world.state(), world.claim("third").status) == ("invalidated", ClaimStatus.CLAIMED)


MANY = tuple(f"bookmark-{n:04d}-{'x' * 1000}" for n in range(40))


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([["b1"], ["b2"]], ["b1", "b2"]),
        ([["b1"], ["b1"]], ["b1"]),
        ([["b1", "b2"], ["b1", "b2"], ["b2"]], ["b1", "b2"]),
        ([["b12"], ["b1"], ["b2"], ["2"]], ["b12", "b1", "b2", "2"]),
        ([["axb"], ["a.b"], ["a%w"], []], ["axb", "a.b", "a%w"]),
        ([["b1"], [], []], ["b1"]),
    ],
)
def test_bookmarks_are_kept_once_each_in_their_order(world: World, given: list[list[str]], kept: list[str]) -> None:
    for bookmarks in given:
        world.invalidate(bookmarks=bookmarks)
    assert world.acquire().bookmarks == tuple(kept)


@pytest.mark.parametrize("again", [0, -1], ids=["first", "last"])
def test_a_repeated_bookmark_takes_no_extra_space(world: World, again: int) -> None:
    as_many_as_fit = MANY[: lease.MAX_BOOKMARKS_BYTES // (len(MANY[0]) + 1)]
    for bookmark in (*as_many_as_fit, as_many_as_fit[again]):
        world.invalidate(bookmarks=[bookmark])
    assert world.acquire().bookmarks == as_many_as_fit


def test_a_claim_with_the_maximum_of_bookmarks_keeps_all_of_them(world: World) -> None:
    most = [f"{n:02d}" + "x" * 1_022 for n in range(16)]
    world.claim(bookmarks=most)
    assert world.acquire().bookmarks == tuple(most)


# Repeats: the reply was lost, and the caller sends the same call again.


SINCE: dict[str, Callable[[World], object]] = {
    "nothing": lambda _: None,
    "an invalidation": lambda world: world.invalidate(),
    "a claim": lambda world: world.claim(),
    "another's acquire": lambda world: world.acquire(OTHER, number=2**52),
}


@pytest.mark.promise("Protocol", "A step can be repeated after its reply was lost")
@pytest.mark.parametrize("since", list(SINCE))
def test_a_repeated_commit_is_accepted_again_and_writes_nothing(world: World, since: str) -> None:
    token = world.acquire().token
    world.commit(token)
    SINCE[since](world)
    before = world.client.get(world.key.entry), world.record()
    assert world.commit(token, degree=99).accepted
    assert (world.client.get(world.key.entry), world.record()) == before


@pytest.mark.parametrize(("step", "state"), [("retry", "retrying"), ("fail", "cooling"), ("hand_back", "queued")])
def test_a_repeated_end_of_a_run_returns_the_same_reply(world: World, step: str, state: str) -> None:
    world.claim()
    token = world.acquire().token
    end: Callable[[int], object] = getattr(world, step)
    first = end(token)
    before = world.record()
    assert (end(token), world.record(), world.state()) == (first, before, state)
    assert first


@pytest.mark.parametrize(("token", "nonce"), [(100, OTHER), (101, b"nonce--1")])
def test_a_repeated_commit_needs_the_token_and_the_nonce_of_the_entry(world: World, token: int, nonce: bytes) -> None:
    world.plant(100, nonce=b"nonce--1")
    assert world.commit(100) is CommitStatus.ACCEPTED
    assert world.commit(token, nonce) is CommitStatus.LOST
    assert (world.entry().token, world.entry().nonce) == (100, b"nonce--1")


def test_a_failure_repeated_after_an_invalidation_is_refused(world: World) -> None:
    token = world.acquire().token
    assert world.fail(token)
    world.invalidate()
    assert not world.fail(token)


def test_the_end_of_another_run_is_refused(world: World) -> None:
    world.fail(world.acquire().token)
    world.claim(force=True)
    world.acquire(OTHER)
    assert not world.fail(int(world.record()["token"]))
    assert not world.retry(int(world.record()["token"]), ticket="")
    assert world.state() == "running"


def test_a_repeated_commit_reports_again_that_it_was_invalidated(world: World) -> None:
    # Its first reply may have been lost, and with it the follow-up refresh that the invalidation requires.
    token = world.acquire().token
    world.invalidate()
    assert [world.commit(token) for _ in range(2)] == [CommitStatus.ACCEPTED_AS_STALE] * 2
