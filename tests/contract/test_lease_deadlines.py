"""Each deadline to the microsecond, on a Redis whose clock stands still: just before it, and at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from api_client.protocol.lease import AcquireStatus, ClaimStatus, CommitStatus
from tests.support import lease_world as lasting

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.lease_world import ClockedWorld

OTHER = b"nonce--2"
HOUR = 3_600


def running(world: ClockedWorld) -> float:
    world.acquire()
    return lasting.LEASE_SECONDS


def retrying(world: ClockedWorld) -> float:
    world.retry(world.acquire().token)
    return lasting.PAUSE_SECONDS


def cooling(world: ClockedWorld) -> float:
    world.fail(world.acquire().token)
    return lasting.COOLING_SECONDS


def queued(world: ClockedWorld) -> float:
    world.claim("first")
    return lasting.QUEUE_TTL_SECONDS


BUSY = pytest.mark.parametrize("bring", [running, retrying, cooling])


@pytest.mark.parametrize("bring", [running, retrying, cooling, queued])
def test_a_claim_is_granted_at_the_deadline_and_not_before(
    clocked_world: ClockedWorld, bring: Callable[[ClockedWorld], float]
) -> None:
    world = clocked_world
    deadline_us = world.now_us() + int(bring(world) * 1e6)
    world.at(deadline_us - 1)
    refused = world.claim("second")
    assert (refused.status, refused.left_seconds) == (ClaimStatus.REFUSED, 1e-6)
    world.at(deadline_us)
    assert world.claim("second").status is ClaimStatus.CLAIMED


@BUSY
def test_an_acquire_is_granted_at_the_deadline_and_not_before(
    clocked_world: ClockedWorld, bring: Callable[[ClockedWorld], float]
) -> None:
    world = clocked_world
    deadline_us = world.now_us() + int(bring(world) * 1e6)
    world.at(deadline_us - 1)
    held = world.acquire(OTHER)
    assert (held.status, held.left_seconds) == (AcquireStatus.HELD, 1e-6)
    world.at(deadline_us)
    assert world.acquire(OTHER).status is AcquireStatus.ACQUIRED


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


def test_a_repeated_step_returns_the_time_left_now(clocked_world: ClockedWorld) -> None:
    world = clocked_world
    world.claim("mine")
    world.pass_time(100)
    assert world.claim("mine").left_seconds == lasting.QUEUE_TTL_SECONDS - 100
    token = world.acquire().token
    world.pass_time(100)
    assert world.acquire().left_seconds == lasting.LEASE_SECONDS - 100
    world.fail(token)
    world.pass_time(100)
    again = world.store.run(lasting.fail_call(world.key, token, b"nonce--1"))
    assert (again.pause_seconds, again.failed_token) == (lasting.COOLING_SECONDS - 100, 0)


@pytest.mark.parametrize("bring", [running, retrying, cooling, queued])
def test_a_record_expires_once_its_retention_has_passed(
    clocked_world: ClockedWorld, bring: Callable[[ClockedWorld], float]
) -> None:
    world = clocked_world
    longest = max(bring(world), lasting.LIMIT_SECONDS if bring is running else 0)
    world.pass_time(longest + lasting.RETENTION_SECONDS)
    assert world.look().record_ms == 0
    world.pass_time(0.001)
    assert world.look().record == {}


@pytest.mark.promise("Protocol", "Numbers grow although Redis' clock was set back")
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


def test_the_queue_wait_is_not_negative_when_the_clock_was_set_back(clocked_world: ClockedWorld) -> None:
    world = clocked_world
    world.claim()
    world.pass_time(-HOUR)
    reply = world.acquire()
    assert reply.claimed_at_us == reply.now_us == world.now_us()
