"""The reply of each lease step, field by field."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api_client.protocol import lease
from api_client.protocol.lease import AcquireReply, AcquireStatus, Call, ClaimReply, ClaimStatus, RecordState
from api_client.transport import scripts as lease_store
from tests.support import lease_world as lasting
from tests.support.lease_world import ClockedWorld

NONCE, OTHER = b"nonce--1", b"nonce--2"


def header_of(world: ClockedWorld) -> bytes:
    """Return the stored entry without its payload."""
    raw = world.client.get(world.key.entry)
    return raw[: -len(lasting.PAYLOAD)]


@pytest.mark.parametrize("has_entry", [False, True])
def test_the_replies_to_an_acquire_and_its_repetition(clocked_world: ClockedWorld, has_entry: bool) -> None:
    world = clocked_world
    if has_entry:
        world.plant(5)
    generation = world.invalidate(bookmarks=["b1", "b2"])
    world.pass_time(1)
    claimed_at = world.now_us()
    world.claim()
    world.pass_time(7)
    first = world.acquire()
    assert first == AcquireReply(
        AcquireStatus.ACQUIRED, RecordState.RUNNING, lasting.LEASE_SECONDS, world.now_us(), world.now_us(), claimed_at,
        generation, ("b1", "b2"), header_of(world) if has_entry else b"",
    )  # fmt: skip
    world.pass_time(3)
    assert world.acquire() == replace(first, left_seconds=lasting.LEASE_SECONDS - 3, now_us=world.now_us())


def test_the_reply_to_an_acquire_during_a_run(clocked_world: ClockedWorld) -> None:
    world = clocked_world
    world.plant(5)
    world.invalidate(bookmarks=["b1"])
    world.acquire()
    world.pass_time(3)
    assert world.acquire(OTHER) == AcquireReply(
        AcquireStatus.HELD, RecordState.RUNNING, lasting.LEASE_SECONDS - 3, 0, world.now_us(), 0, 0, (), b""
    )


@pytest.mark.parametrize("is_claimed", [False, True])
def test_the_reply_to_an_acquire_of_a_fresh_entry(clocked_world: ClockedWorld, is_claimed: bool) -> None:
    world = clocked_world
    number = world.claim().number if is_claimed else 1
    token = world.now_us() + 10
    world.plant(token)
    assert world.acquire(number=number) == AcquireReply(
        AcquireStatus.ALREADY_FRESH, RecordState.QUEUED if is_claimed else RecordState.IDLE, 0.0, token, world.now_us(),
        0, 0, (), b"",
    )  # fmt: skip


def test_the_replies_to_a_claim_and_its_repetition(clocked_world: ClockedWorld) -> None:
    world, at = clocked_world, clocked_world.now_us()
    first = world.claim()
    assert first == ClaimReply(ClaimStatus.CLAIMED, RecordState.QUEUED, lasting.QUEUE_TTL_SECONDS, "", 0, at, at, at)
    world.pass_time(3)
    assert world.claim() == replace(first, left_seconds=lasting.QUEUE_TTL_SECONDS - 3, now_us=world.now_us())


def test_a_run_is_handed_back_under_the_newest_claim_that_it_knows(clocked_world: ClockedWorld) -> None:
    world = clocked_world
    number = world.claim().number + 7
    assert world.hand_back(world.acquire(number=number).token) == number


def test_a_run_after_an_abandoned_refresh_counts_attempts_from_the_start(clocked_world: ClockedWorld) -> None:
    world = clocked_world
    world.fail(world.acquire().token)
    world.pass_time(lasting.COOLING_SECONDS)
    assert world.acquire(OTHER).attempts == 0
    assert "attempts" not in world.record()


def test_the_reply_to_a_claim_during_cooling(clocked_world: ClockedWorld) -> None:
    world = clocked_world
    number = world.claim().number
    world.pass_time(1)
    world.fail(world.acquire().token)
    world.pass_time(2)
    assert world.claim("another") == ClaimReply(
        ClaimStatus.REFUSED, RecordState.COOLING, lasting.COOLING_SECONDS - 2, "syntax", 2, world.now_us(), number,
        world.now_us(),
    )  # fmt: skip


def raw(world: ClockedWorld, call: Call[object]) -> object:
    """Return a script's unparsed reply."""
    # Through the module's names, which the mutation tests patch.
    world.client.script_load(lease_store.source(call.script))
    return world.client.execute_command(*lease_store.by_hash(call))


def test_the_raw_reply_of_each_step_of_a_run(clocked_world: ClockedWorld) -> None:
    world, key, own = clocked_world, clocked_world.key, {"nonce": NONCE, "retention_seconds": 60.0}
    failing = {"cooling_seconds": 30.0, "kind": "syntax", "attempts": 1, "longest_seconds": 60.0}
    handing = {"queue_ttl_seconds": 5.0}
    pausing = {"ticket": "ticket-1", "pause_seconds": 5.0, "kind": "timeout", "attempts": 1}
    for call, none in (
        (lease.fail(key, token=7, **own, **failing), [0, b"0", 0, b"0"]),
        (lease.hand_back(key, token=7, **own, **handing), [0, b"0"]),
        (lease.retry(key, token=7, **own, **pausing), 0),
        (lease.renew(key, token=7, nonce=NONCE, lease_seconds=5.0), b"0"),
        (lease.unclaim(key, claim_id="claim-1", retention_seconds=60.0), 0),
        (lease.republish(key, interval_seconds=1.0), [0, b"0"]),
    ):
        assert raw(world, call) == none, call.script

    number = str(world.claim().number).encode()
    assert raw(world, lease.republish(key, interval_seconds=1.0)) == [0, b"0"]
    world.pass_time(1)
    assert raw(world, lease.republish(key, interval_seconds=1.0)) == [1, number]
    token = world.acquire().token
    assert raw(world, lease.renew(key, token=token, nonce=NONCE, lease_seconds=5.0)) == b"5000000"
    for _ in range(2):
        assert raw(world, lease.hand_back(key, token=token, **own, **handing)) == [1, number]
    assert world.client.pttl(key.record) == 65_000
    assert raw(world, lease.unclaim(key, claim_id=NONCE, retention_seconds=60.0)) == 1
    token = world.acquire().token
    for _ in range(2):
        assert raw(world, lease.retry(key, token=token, **own, **pausing)) == 1
    token = world.acquire(NONCE, ticket="ticket-1").token
    for repetition in range(2):
        assert raw(world, lease.fail(key, token=token, **own, **failing)) == [1, b"30000000", 1, b"0"], repetition
    failed = str(token).encode()
    token = world.acquire(NONCE, number=world.claim(force=True).number).token
    assert raw(world, lease.fail(key, token=token, **own, **failing)) == [1, b"60000000", 2, failed]
