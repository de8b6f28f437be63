"""Each lease step in each state of the record: whether it is granted, the state that follows, and the reply."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from api_client.protocol.lease import AcquireStatus, ClaimStatus
from tests.support.lease_world import COOLING_SECONDS, LEASE_SECONDS, PAUSE_SECONDS, QUEUE_TTL_SECONDS, World

OTHER = b"nonce--2"


def idle(world: World) -> None:
    """Nothing."""


def queued(world: World) -> None:
    world.claim("first")


def running(world: World) -> None:
    world.acquire()


def retrying(world: World) -> None:
    world.retry(world.acquire().token)


def cooling(world: World) -> None:
    world.fail(world.acquire().token)


def invalidated(world: World) -> None:
    world.invalidate()


STATES: dict[str, tuple[Callable[[World], None], float]] = {
    "idle": (idle, 0.0),
    "queued": (queued, QUEUE_TTL_SECONDS),
    "running": (running, LEASE_SECONDS),
    "retrying": (retrying, PAUSE_SECONDS),
    "cooling": (cooling, COOLING_SECONDS),
    "invalidated": (invalidated, 0.0),
}
OPEN_TO_CLAIMS = {"idle", "invalidated"}
OPEN_TO_RUNS = {"idle", "queued", "invalidated"}


@pytest.fixture(params=list(STATES))
def state(request: pytest.FixtureRequest, world: World) -> str:
    """A state that ``world`` has been brought into; its deadline lies far ahead."""
    STATES[request.param][0](world)
    assert world.state() == request.param
    return str(request.param)


def test_a_claim_is_granted_only_without_a_live_record(world: World, state: str) -> None:
    reply = world.claim("second")
    if state in OPEN_TO_CLAIMS:
        assert (reply.status, reply.state, world.state()) == (ClaimStatus.CLAIMED, "queued", "queued")
        assert reply.left_seconds == QUEUE_TTL_SECONDS
    else:
        assert (reply.status, reply.state, world.state()) == (ClaimStatus.REFUSED, state, state)
        assert reply.left_seconds == pytest.approx(STATES[state][1], abs=60)


def test_a_forced_claim_overrides_cooling_and_no_other_state(world: World, state: str) -> None:
    granted = world.claim("second", force=True).status is ClaimStatus.CLAIMED
    assert granted == (state in OPEN_TO_CLAIMS | {"cooling"})


def test_a_number_is_larger_than_the_entry_s_generation(world: World) -> None:
    later = world.now_us() + 3_600_000_000
    world.plant(7, generation=later)
    assert world.claim(seen=7).number == later + 1


@pytest.mark.promise("Protocol", "I4: after its deadline, any state can be claimed and acquired")
def test_after_its_deadline_a_record_in_any_state_can_be_claimed_and_acquired(world: World, state: str) -> None:
    world.pass_time(10_000)
    assert world.claim("second").status is ClaimStatus.CLAIMED
    assert world.record().keys() & {"ticket", "kind", "ended_by"} == set()
    world.pass_time(10_000)
    assert world.acquire(OTHER).status is AcquireStatus.ACQUIRED


def test_an_acquire_takes_over_an_expired_record_in_any_state(world: World, state: str) -> None:
    world.pass_time(10_000)
    assert world.acquire(OTHER).status is AcquireStatus.ACQUIRED
    assert world.record().keys() & {"claim", "ticket", "kind", "ended_by"} == set()


@pytest.mark.parametrize("step", ["claim", "acquire"])
def test_an_invalidated_record_blocks_no_claim_and_no_acquire(world: World, step: str) -> None:
    invalidated(world)
    world.client.hset(world.key.record, "until", world.now_us() + 3_600_000_000)
    assert getattr(world, step)().status in {ClaimStatus.CLAIMED, AcquireStatus.ACQUIRED}


def test_an_acquire_is_refused_while_running_retrying_or_cooling(world: World, state: str) -> None:
    before, reply = world.record(), world.acquire(OTHER, ticket="of another")
    if state in OPEN_TO_RUNS:
        assert (reply.status, world.state()) == (AcquireStatus.ACQUIRED, "running")
        assert reply.left_seconds == LEASE_SECONDS
    else:
        assert (reply.status, reply.state) == (AcquireStatus.HELD, state)
        assert reply.left_seconds == pytest.approx(STATES[state][1], abs=60)
        assert world.record() == before


def test_a_claim_for_an_already_refreshed_entry_is_refused(world: World) -> None:
    world.plant(100)
    refused = world.claim(seen=99)
    assert (refused.status, refused.state, refused.left_seconds) == (ClaimStatus.ALREADY_REFRESHED, "idle", 0)
    assert world.state() == "idle"
    assert world.claim(seen=100).status is ClaimStatus.CLAIMED


def test_an_acquire_for_an_older_message_finds_the_entry_fresh(world: World) -> None:
    number = world.claim().number
    world.commit(world.acquire(number=number).token)
    late = world.acquire(OTHER, number=number)
    assert (late.status, late.token) == (AcquireStatus.ALREADY_FRESH, world.entry().token)
    assert world.state() == "idle"


def test_a_late_message_acquires_the_claim_that_is_queued(world: World) -> None:
    number = world.claim().number
    world.commit(world.acquire(number=number).token)
    world.claim("second")
    assert world.acquire(OTHER, number=number).status is AcquireStatus.ACQUIRED


@pytest.mark.parametrize("record_lost", [False, True])
def test_an_old_message_refreshes_an_entry_that_was_invalidated_since(world: World, record_lost: bool) -> None:
    number = world.claim().number
    world.commit(world.acquire(number=number).token)
    world.invalidate()
    if record_lost:
        world.client.delete(world.key.record)
    assert world.acquire(OTHER, number=number).status is AcquireStatus.ACQUIRED


def test_a_retry_ticket_is_consumed_by_its_acquire(world: World) -> None:
    world.retry(world.acquire().token)
    taken = world.acquire(OTHER, ticket="ticket-1")
    assert (taken.status, world.record().keys() & {"ticket", "kind"}) == (AcquireStatus.ACQUIRED, set())
    assert world.acquire(b"nonce--3", ticket="ticket-1").status is AcquireStatus.HELD


@pytest.mark.parametrize("bring", [running, retrying, cooling])
def test_the_id_of_a_finished_claim_cannot_claim_unclaim_or_hand_back(
    world: World, bring: Callable[[World], None]
) -> None:
    bring(world)
    world.client.hset(world.key.record, "claim", "over")
    assert world.claim("over").status is ClaimStatus.REFUSED
    assert not world.unclaim("over")
    world.client.hset(world.key.record, mapping={"claim": OTHER, "claim_number": 5})
    assert not world.hand_back(7, OTHER)


@pytest.mark.parametrize("bring", [running, cooling])
def test_a_retry_ticket_is_ignored_outside_the_retrying_state(world: World, bring: Callable[[World], None]) -> None:
    bring(world)
    world.client.hset(world.key.record, "ticket", "of a pause long over")
    assert world.acquire(OTHER, ticket="of a pause long over").status is AcquireStatus.HELD


def test_an_empty_ticket_does_not_end_a_retry_pause_early(world: World) -> None:
    world.retry(world.acquire().token, ticket="")
    assert world.acquire(OTHER, ticket="").status is AcquireStatus.HELD


def test_the_queue_wait_is_measured_from_the_claim_even_across_a_retry(world: World) -> None:
    world.claim()
    claimed_at = int(world.record()["claimed_at"])
    first = world.acquire()
    world.retry(first.token)
    second = world.acquire(OTHER, ticket="ticket-1")
    assert first.claimed_at_us == second.claimed_at_us == claimed_at
    assert second.now_us >= claimed_at


def test_a_run_that_takes_over_an_expired_lease_starts_a_new_queue_wait(world: World) -> None:
    world.claim()
    world.acquire()
    world.pass_time(10_000)
    taken = world.acquire(OTHER)
    assert taken.claimed_at_us == taken.now_us


def test_a_claim_without_claimed_at_has_no_queue_wait(world: World) -> None:
    world.claim()
    world.client.hdel(world.key.record, "claimed_at")
    reply = world.acquire()
    assert reply.claimed_at_us == reply.now_us


def test_only_a_queued_record_is_republished(world: World, state: str) -> None:
    world.pass_time(1_500)
    assert bool(world.republish()) == (state == "queued")


def test_only_the_claimer_can_unclaim(world: World, state: str) -> None:
    assert not world.unclaim("another")
    assert world.state() == state
    assert world.unclaim("first") == (state == "queued")


def test_numbers_in_a_record_are_plain_digits(world: World, state: str) -> None:
    words = {"state", "nonce", "claim", "ticket", "kind", "ended_by", "by"}
    words |= {"bookmarks", "bookmarks_before", "claim_bookmarks"}
    numbers = {name: value for name, value in world.record().items() if name not in words}
    assert [name for name, value in numbers.items() if not value.isdigit()] == []


def test_an_acquire_repeated_after_its_lease_expired_and_was_claimed_is_a_new_run(world: World) -> None:
    first = world.acquire()
    world.pass_time(10_000)
    number = world.claim("second").number
    again = world.acquire(number=number)
    assert (again.token > first.token, world.state()) == (True, "running")
