"""Failed attempts of a refresh, counted in its record: also those of processes that could not report them."""

from __future__ import annotations

import pytest

from api_client.protocol import lease
from api_client.protocol.lease import AcquireStatus
from tests.support.lease_world import World

LONG_SECONDS = 10_000


def nonce(number: int) -> bytes:
    return b"nonce-%02d" % number


def taken_over(world: World, times: int) -> None:
    """Let the leases of ``times`` consecutive runs expire; the next claim finds the last one."""
    for number in range(times):
        world.claim(f"claim-{number}")
        world.acquire(nonce(number))
        world.pass_time(LONG_SECONDS)


@pytest.mark.parametrize("claims", [True, False], ids=["claimed", "delivered again"])
def test_each_run_whose_lease_expired_is_a_failed_attempt(world: World, *, claims: bool) -> None:
    for before in range(4):
        if claims:
            world.claim(f"claim-{before}")
        reply = world.acquire(nonce(before))
        assert (reply.status, reply.attempts) == (AcquireStatus.ACQUIRED, before)
        assert world.acquire(nonce(before)).attempts == before, "the same, repeated"
        world.pass_time(LONG_SECONDS)


@pytest.mark.parametrize("claims", [0, 1, 3], ids=["delivered again", "claimed", "claimed again and again"])
def test_a_run_whose_lease_expired_is_reported_as_overtaken_once(world: World, claims: int) -> None:
    assert not world.acquire(nonce(0)).has_overtaken
    world.pass_time(LONG_SECONDS)
    for number in range(claims):
        world.claim(f"claim-{number}")
        world.pass_time(LONG_SECONDS)
    overtaking = world.acquire(nonce(1))
    assert overtaking.has_overtaken
    assert world.acquire(nonce(1)).has_overtaken, "the same, repeated"
    world.retry(overtaking.token, nonce(1))
    assert not world.acquire(nonce(2), ticket="ticket-1").has_overtaken


@pytest.mark.promise("Protocol", "A load in place that the end of its task interrupts counts as no attempt")
@pytest.mark.parametrize("claims", [True, False], ids=["claimed", "delivered again"])
def test_a_run_in_place_whose_lease_expired_is_no_attempt_and_not_overtaken(world: World, *, claims: bool) -> None:
    for number in range(3):
        reply = world.acquire(nonce(number), in_place=True)
        assert (reply.attempts, reply.has_overtaken) == (0, False)
        world.pass_time(LONG_SECONDS)
        if claims:
            world.claim(f"claim-{number}")
    reply = world.acquire(nonce(7))
    assert (reply.attempts, reply.has_overtaken) == (0, False)
    world.pass_time(LONG_SECONDS)
    reply = world.acquire(nonce(8), in_place=True)
    assert (reply.attempts, reply.has_overtaken) == (1, True), "the one before was a worker's own"


def test_a_run_in_place_keeps_the_attempts_that_were_counted_before_it(world: World) -> None:
    taken_over(world, 2)
    assert world.acquire(nonce(5), in_place=True).attempts == 2
    world.pass_time(LONG_SECONDS)
    assert world.acquire(nonce(6)).attempts == 2


def fail_in_a_cycle(world: World) -> None:
    """Let a run fail, whose readers are told of the cycle."""
    token = world.acquire(nonce(0)).token
    world.store.run(
        lease.fail(
            world.key, token=token, nonce=nonce(0), cooling_seconds=LONG_SECONDS, kind="cycle", attempts=1,
            retention_seconds=LONG_SECONDS, why="a → b → a",
        )
    )  # fmt: skip
    assert world.claim("claim-1").why == "a → b → a"


@pytest.mark.parametrize("claimed", [True, False])
def test_readers_are_told_why_a_refresh_failed_until_the_next_one(world: World, claimed: bool) -> None:
    fail_in_a_cycle(world)
    world.pass_time(2 * LONG_SECONDS)
    if claimed:  # else the next run begins by a message that comes late
        assert world.claim("claim-2").why == ""
    world.fail(world.acquire(nonce(1)).token, nonce(1))
    assert world.claim("claim-3").why == ""


def test_an_invalidation_takes_a_failure_out_of_the_record(world: World) -> None:
    fail_in_a_cycle(world)
    world.invalidate()
    assert world.record().keys() & {"kind", "why"} == set()


@pytest.mark.parametrize("claims", [0, 1])
def test_a_repeated_acquire_does_not_overtake_its_own_run(world: World, claims: int) -> None:
    world.acquire(nonce(0))  # its reply is lost
    world.pass_time(LONG_SECONDS)
    for number in range(claims):
        world.claim(f"claim-{number}")
    repeated = world.acquire(nonce(0))
    assert (repeated.status, repeated.has_overtaken) == (AcquireStatus.ACQUIRED, False)
