"""Backoff of a key that keeps failing: its growing pauses, and what resets them. Deadlines are moved; no test waits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from api_client.protocol import lease
from api_client.protocol.lease import ClaimStatus, FailReply
from tests.support.lease_world import RETENTION_SECONDS, ClockedWorld, World

FIRST_SECONDS, MAX_SECONDS = 30.0, 3_600.0


def failed(world: World, *, longest_seconds: float = MAX_SECONDS, retention_seconds: float = 60.0) -> FailReply:
    """Claim, begin a run, and abandon it."""
    assert world.claim(f"claim-{world.now_us()}").status is ClaimStatus.CLAIMED
    return abandoned(world, longest_seconds=longest_seconds, retention_seconds=retention_seconds)


def abandoned(world: World, *, longest_seconds: float = MAX_SECONDS, retention_seconds: float = 60.0) -> FailReply:
    return world.store.run(
        lease.fail(
            world.key, token=world.acquire().token, nonce=b"nonce--1", cooling_seconds=FIRST_SECONDS, kind="syntax",
            attempts=1, retention_seconds=retention_seconds, longest_seconds=longest_seconds,
        )
    )  # fmt: skip


def failed_often(world: World, times: int) -> None:
    for _ in range(times):
        world.pass_time(failed(world).pause_seconds)


@pytest.mark.promise("Refreshing", "Each further failure doubles the backoff")
def test_each_consecutive_failure_doubles_the_pause_up_to_the_maximum(world: World) -> None:
    replies = []
    for _ in range(9):
        replies.append(failed(world))
        left = (int(world.record()["until"]) - world.now_us()) / 1e6
        assert replies[-1].pause_seconds - 10 < left <= replies[-1].pause_seconds
        world.pass_time(replies[-1].pause_seconds)
    assert [reply.pause_seconds for reply in replies] == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert [reply.failures for reply in replies] == list(range(1, 10))


def test_an_infrastructure_failure_has_the_first_pause_and_is_not_counted(world: World) -> None:
    failed_often(world, 2)
    other = failed(world, longest_seconds=0)
    assert (other.pause_seconds, other.failures) == (FIRST_SECONDS, 2)
    world.pass_time(FIRST_SECONDS)
    assert failed(world).failures == 3


def test_a_maximum_pause_below_the_first_pause_is_raised_to_it(world: World) -> None:
    assert [failed(world, longest_seconds=1).pause_seconds] == [FIRST_SECONDS]


@pytest.mark.parametrize("claimed", ["in time", "too late"])
def test_a_row_in_a_record_kept_for_bookmarks_ends_as_long_after_its_pause_as_that_was(
    clocked_world: ClockedWorld, claimed: str
) -> None:
    world = clocked_world
    world.invalidate(bookmarks=["bookmark"])  # keeps the record for 20 min
    for _ in range(3):
        pause_seconds = failed(world).pause_seconds
        world.pass_time(pause_seconds)
    world.at(world.clock.now_us + int(pause_seconds * 1e6) - (claimed == "in time"))
    world.claim("again")
    world.pass_time(60)  # in the queue
    assert abandoned(world).failures == (4 if claimed == "in time" else 1)


def test_a_row_that_an_earlier_release_has_counted_goes_on(world: World) -> None:
    failed_often(world, 2)
    world.client.hdel(world.key.record, "failures_until")
    assert failed(world).failures == 3


def commit(world: World) -> None:
    world.claim("again")
    assert world.commit(world.acquire().token).accepted


def commit_late(world: World) -> None:
    """Commit after the lease expired and another claim was granted."""
    world.claim("again")
    token = world.acquire().token
    world.pass_time(10_000)
    assert world.claim("yet again").status is ClaimStatus.CLAIMED
    assert world.commit(token).accepted


def invalidate_a_run(world: World) -> None:
    world.claim("again")
    world.acquire()
    world.invalidate()


def invalidate_at_rest(world: World) -> None:
    world.invalidate()


def forget(world: World) -> None:
    world.claim("again")
    world.unclaim("again", forget=True)


@pytest.mark.parametrize("end", [commit, commit_late, invalidate_a_run, invalidate_at_rest, forget])
@pytest.mark.parametrize("invalidated_before", [False, True])
def test_failures_and_attempts_end_with_a_commit_an_invalidation_or_forget(
    world: World, end: Callable[[World], None], invalidated_before: bool
) -> None:
    if invalidated_before:
        world.invalidate()
    failed_often(world, 4)
    assert world.record()["failures"] == b"4"
    end(world)
    assert world.record().keys() & {"failures", "failures_until", "attempts"} == set()


@pytest.mark.parametrize("invalidated_before", [False, True])
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("how", ["unclaim", "hand back"])
def test_an_unclaim_keeps_the_count_of_failures(world: World, how: str, force: bool, invalidated_before: bool) -> None:
    if invalidated_before:
        world.invalidate()
    failed_often(world, 7)
    pause_seconds = failed(world).pause_seconds
    if not force:
        world.pass_time(pause_seconds)
    number = world.claim("again", force=force).number
    if how == "unclaim":
        assert world.unclaim("again")
    else:
        token = world.acquire(number=number).token
        assert world.hand_back(token)
        assert world.unclaim(b"nonce--1")
    assert (world.state(), world.record()["failures"]) == ("invalidated" if invalidated_before else "idle", b"8")
    assert not world.record().keys() & {"claim", "since", "kind", "attempts", "token", "nonce", "limit", "by"}
    reply = failed(world)
    assert (reply.pause_seconds, reply.failures) == (MAX_SECONDS, 9)


@pytest.mark.parametrize("forget", [False, True])
def test_an_unclaim_keeps_the_count_of_failed_attempts_or_forgets_it(world: World, forget: bool) -> None:
    if forget:
        world.invalidate()  # which keeps the record
    world.acquire(number=world.claim("again").number)
    world.pass_time(10_000)
    assert world.claim("once more").status is ClaimStatus.CLAIMED
    assert world.unclaim("once more", forget=forget)
    assert world.record().get("attempts") == (None if forget else b"1")


def test_an_invalidation_is_kept_for_its_retention_after_a_late_unclaim(world: World) -> None:
    world.invalidate()
    failed(world)
    world.claim("again", force=True)
    world.client.pexpire(world.key.record, 1_000)
    world.unclaim("again")
    assert world.client.pttl(world.key.record) == pytest.approx(RETENTION_SECONDS * 1_000, abs=60_000)


def test_after_a_record_without_a_failure_count_the_next_failure_is_the_first(world: World) -> None:
    failed(world)
    world.pass_time(FIRST_SECONDS)
    world.client.hdel(world.key.record, "failures", "failed_token")
    assert failed(world) == FailReply(FIRST_SECONDS, 1, 0)
