"""Each deadline to the microsecond: just before it, and at it; and with Redis' clock set back, which ends it, too.

The clock stands still but for the tests. After a step back deadlines count as passed, and no caller waits for the old
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from api_client.explain import explain_reads, explanation
from api_client.protocol.lease import AcquireStatus, ClaimStatus, CommitStatus
from tests.support import lease_world as lasting
from tests.support.lease_world import ClockedWorld

OTHER = b"nonce--2"
HOUR = 3_600
TOLERATED = 1.0  # a second: clocks are corrected by fractions of one all the time
US = 1e-6


def begun(world: ClockedWorld) -> int:
    """Begin a run and let time pass, so that its end has another time; return its token."""
    token = world.acquire().token
    world.pass_time(100)
    return token


def queued(world: ClockedWorld) -> float:
    world.claim("first")
    return lasting.QUEUE_TTL_SECONDS


def running(world: ClockedWorld) -> float:
    world.acquire()
    return lasting.LEASE_SECONDS


def renewed(world: ClockedWorld) -> float:
    token = world.acquire().token
    world.pass_time(600)
    world.renew(token)
    return lasting.LEASE_SECONDS


def retrying(world: ClockedWorld) -> float:
    world.retry(begun(world))
    return lasting.PAUSE_SECONDS


def cooling(world: ClockedWorld) -> float:
    world.fail(begun(world))
    return lasting.COOLING_SECONDS


def handed_back(world: ClockedWorld) -> float:
    world.hand_back(begun(world))
    return lasting.QUEUE_TTL_SECONDS


HELD = pytest.mark.parametrize("bring", [running, renewed, retrying, cooling])
EVERY = pytest.mark.parametrize("bring", [queued, running, renewed, retrying, cooling, handed_back])
MOMENTS = pytest.mark.parametrize("is_set_back", [False, True], ids=["at the deadline", "set back"])


def pass_all_but_a_microsecond(world: ClockedWorld, lasts: float, *, is_set_back: bool) -> float:
    """Move the clock to where one microsecond more ends the state; return the seconds left there."""
    world.pass_time(-TOLERATED if is_set_back else lasts - US)
    return lasts if is_set_back else US


def left_as_explained(world: ClockedWorld) -> float:
    replies = [world.client.execute_command(*command) for command in explain_reads(world.key)]
    record = explanation(world.key, replies).record
    return record.left


@EVERY
@MOMENTS
def test_a_claim_is_granted_from_the_end_of_the_state_on_and_not_before(
    clocked_world: ClockedWorld, bring: Callable[[ClockedWorld], float], is_set_back: bool
) -> None:
    world = clocked_world
    left = pass_all_but_a_microsecond(world, bring(world), is_set_back=is_set_back)
    refused = world.claim("second")
    assert (refused.status, refused.left_seconds) == (ClaimStatus.REFUSED, left)
    world.pass_time(-US if is_set_back else US)
    assert world.claim("second").status is ClaimStatus.CLAIMED


@HELD
@MOMENTS
def test_an_acquire_is_granted_from_the_end_of_the_state_on_and_not_before(
    clocked_world: ClockedWorld, bring: Callable[[ClockedWorld], float], is_set_back: bool
) -> None:
    world = clocked_world
    left = pass_all_but_a_microsecond(world, bring(world), is_set_back=is_set_back)
    held = world.acquire(OTHER)
    assert (held.status, held.left_seconds) == (AcquireStatus.HELD, left)
    world.pass_time(-US if is_set_back else US)
    assert world.acquire(OTHER).status is AcquireStatus.ACQUIRED


@EVERY
@pytest.mark.parametrize("back", [0.5, 10.0, 500.0, HOUR])
def test_no_reply_returns_a_longer_wait_than_was_granted(
    clocked_world: ClockedWorld, bring: Callable[[ClockedWorld], float], back: float
) -> None:
    world = clocked_world
    lasts = bring(world)
    world.pass_time(9)
    world.pass_time(-back)
    is_over = back > 9 + TOLERATED
    assert left_as_explained(world) == pytest.approx(0 if is_over else min(lasts, lasts - 9 + back))
    reply = world.claim("second")
    assert reply.status is (ClaimStatus.CLAIMED if is_over else ClaimStatus.REFUSED)
    assert is_over or reply.left_seconds == pytest.approx(min(lasts, lasts - 9 + back))


def test_a_step_repeated_after_the_clock_was_set_back_returns_the_same_result(clocked_world: ClockedWorld) -> None:
    world = clocked_world
    number = world.claim("mine").number
    world.pass_time(-HOUR)
    again = world.claim("mine")
    assert (again.status, again.number, again.left_seconds) == (ClaimStatus.CLAIMED, number, 0)
    token = world.acquire(number=number).token
    world.pass_time(-HOUR)
    run = world.acquire(number=number)
    assert (run.status, run.token, run.left_seconds) == (AcquireStatus.ACQUIRED, token, 0)
    world.fail(token)
    world.pass_time(-HOUR)
    assert world.store.run(lasting.fail_call(world.key, token, b"nonce--1")).pause_seconds == 0


@EVERY
def test_a_record_of_an_earlier_release_lasts_until_its_deadline(
    clocked_world: ClockedWorld, bring: Callable[[ClockedWorld], float]
) -> None:
    world = clocked_world
    lasts = bring(world)
    world.client.hdel(world.key.record, "since")
    world.pass_time(-HOUR)
    assert left_as_explained(world) == HOUR + lasts
    assert world.claim("second").left_seconds == HOUR + lasts
    world.pass_time(HOUR + lasts)
    assert world.claim("second").status is ClaimStatus.CLAIMED


@pytest.fixture
def far_future(clocked_world: ClockedWorld) -> Iterator[ClockedWorld]:
    now_us = clocked_world.clock.now_us
    yield clocked_world
    clocked_world.at(now_us)


def test_a_renewal_is_exact_where_the_sum_of_two_times_would_not_be(far_future: ClockedWorld) -> None:
    far_future.at(4_693_473_532_978_347)  # in 2118; Lua's numbers are exact up to 2^53
    token = far_future.acquire().token
    limit = int(far_future.record()["limit"])
    far_future.pass_time(-1 * US)
    far_future.renew(token)
    assert int(far_future.record()["limit"]) == limit - 1


def test_a_lease_of_an_earlier_release_is_renewed_within_its_limit(clocked_world: ClockedWorld) -> None:
    world = clocked_world
    token = world.acquire().token
    world.client.hdel(world.key.record, "since")
    world.pass_time(900)
    limit = world.record()["limit"]
    assert world.renew(token) == lasting.LEASE_SECONDS
    assert (world.record()["limit"], int(world.record()["since"])) == (limit, world.now_us())


def test_a_lease_is_renewed_until_its_deadline_and_not_at_it(clocked_world: ClockedWorld) -> None:
    world = clocked_world
    token = world.acquire().token
    world.pass_time(lasting.LEASE_SECONDS - 1e-6)
    assert world.renew(token) == lasting.LEASE_SECONDS
    world.pass_time(lasting.LEASE_SECONDS)
    assert world.renew(token) == 0


def test_a_lease_is_renewed_until_its_limit_and_not_at_it(clocked_world: ClockedWorld) -> None:
    world = clocked_world
    limit_us = world.now_us() + int(lasting.LIMIT_SECONDS * 1e6)
    token = world.acquire().token
    for _ in range(3):
        world.pass_time(900)
        assert world.renew(token) == min(lasting.LEASE_SECONDS, (limit_us - world.now_us()) / 1e6)
    world.at(limit_us - 1)
    assert world.renew(token) == 1e-6
    # Where `until` lies beyond the limit, the limit counts.
    world.client.hset(world.key.record, "until", limit_us + 1)
    world.at(limit_us)
    before = world.record()
    assert (world.renew(token), world.record()) == (0, before)


def test_a_republication_is_due_to_the_microsecond(clocked_world: ClockedWorld) -> None:
    world = clocked_world
    number = world.claim().number
    for times in range(4):
        world.pass_time(lasting.REPUBLISH_SECONDS * 2**times - 1e-6)
        assert world.republish() == 0
        world.pass_time(1e-6)
        assert world.republish() == number


@pytest.mark.promise("Protocol", "Numbers grow even after Redis' clock was set back")
@pytest.mark.parametrize("step", ["acquire", "claim", "invalidate"])
def test_each_number_drawn_after_the_clock_was_set_back_is_larger(clocked_world: ClockedWorld, step: str) -> None:
    world = clocked_world
    token = world.acquire().token
    assert world.commit(token) is CommitStatus.ACCEPTED
    world.pass_time(-HOUR)
    drawn = {
        "acquire": lambda: world.acquire(OTHER, number=token).token,
        "claim": lambda: world.claim().number,
        "invalidate": world.invalidate,
    }[step]()
    assert drawn == token + 1
