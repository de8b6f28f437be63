"""Scripts on a disturbed Redis: flushed scripts, many concurrent callers, keys of another type."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
import redis

from api_client.protocol import lease
from api_client.protocol.lease import AcquireStatus, ClaimStatus, CommitStatus
from api_client.transport import scripts as lease_store
from api_client.transport.link import CacheLink
from api_client.transport.scripts import SCRIPTS
from refresher.embedded import RedisServer
from tests.support.lease_world import HARD_TTL_SECONDS, LEASE_SECONDS, PAYLOAD, RETENTION_SECONDS, World
from tests.support.lease_world import commit_call as commit
from tests.support.waiting import MAX_WAIT_SECONDS

CALLERS = 100


def test_a_flushed_script_is_loaded_again_in_the_middle_of_a_refresh(world: World, redis_server: RedisServer) -> None:
    world.client.script_flush()
    number = world.claim().number
    world.client.script_flush()
    token = world.acquire(number=number).token
    world.client.script_flush()
    renewals = [lease.renew(world.key, token=token, nonce=b"nonce--1", lease_seconds=LEASE_SECONDS)] * 2
    assert all(left > 0 for left in world.store.run_all(renewals))
    world.client.script_flush()
    with closing(CacheLink(redis_server.url(), MAX_WAIT_SECONDS, MAX_WAIT_SECONDS)) as link:
        committing = commit(world.key, token, b"nonce--1")
        status, replicas = link.run_and_wait(committing, "q", replicas=0, timeout_seconds=0.1)
    assert (status, replicas) == (CommitStatus.ACCEPTED, 0)
    assert world.client.get(world.key.entry).endswith(PAYLOAD)


def test_replies_of_several_steps_in_one_call_keep_their_order(world: World) -> None:
    token = world.acquire().token
    mine = lease.renew(world.key, token=token, nonce=b"nonce--1", lease_seconds=LEASE_SECONDS)
    not_mine = lease.renew(world.key, token=token, nonce=b"nonce--2", lease_seconds=LEASE_SECONDS)
    assert [left > 0 for left in world.store.run_all([mine, not_mine, mine])] == [True, False, True]


def at_once(count: int, act: Callable[[int], Any]) -> list[Any]:
    """Run ``act(number)`` on ``count`` threads at the same time."""
    start = threading.Barrier(count)

    def run(number: int) -> Any:
        start.wait()
        return act(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def test_of_a_hundred_concurrent_claims_one_is_granted(world: World) -> None:
    replies = at_once(CALLERS, lambda number: world.claim(f"claim-{number}"))
    assert Counter(reply.status for reply in replies) == {ClaimStatus.CLAIMED: 1, ClaimStatus.REFUSED: CALLERS - 1}
    (winner,) = (reply for reply in replies if reply.status is ClaimStatus.CLAIMED)
    assert {reply.claim_number for reply in replies} == {winner.number}
    assert len({reply.number for reply in replies}) == CALLERS, "every call has a stamp of its own"


@pytest.mark.promise("Protocol", "I1: one winner")
def test_of_a_hundred_concurrent_acquires_one_runs_and_of_two_commits_one_is_stored(world: World) -> None:
    world.claim()
    replies = at_once(CALLERS, lambda number: world.acquire(f"{number:08d}".encode()))
    assert Counter(reply.status for reply in replies) == {AcquireStatus.ACQUIRED: 1, AcquireStatus.HELD: CALLERS - 1}
    (index,) = (n for n, reply in enumerate(replies) if reply.status is AcquireStatus.ACQUIRED)
    statuses = at_once(2, lambda n: world.commit(replies[index].token, f"{index + n:08d}".encode()))
    assert sorted(statuses) in (
        [CommitStatus.ACCEPTED, CommitStatus.SUPERSEDED],
        [CommitStatus.ACCEPTED, CommitStatus.LOST],
    )


BROKEN_ENTRIES = {
    "empty": b"",
    "text": b"hello" * 100,
    "another magic": b"XX" + bytes(18) + (5).to_bytes(8, "big") + bytes(100),
    "only the magic": b"\xc7X",
    "cut in the frozen fields": b"\xc7X" + bytes(49),
    "a token beyond 2^53": b"\xc7X" + bytes(18) + b"\x7f" + bytes(7) + bytes(100),
    "a generation beyond 2^53": b"\xc7X" + bytes(18) + bytes(8) + b"\xff" * 8 + bytes(100),
    "a header of no length": b"\xc7X" + bytes(200),
}


@pytest.mark.parametrize("name", list(BROKEN_ENTRIES))
def test_an_entry_of_garbage_is_claimed_loaded_and_replaced(world: World, name: str) -> None:
    world.client.set(world.key.entry, BROKEN_ENTRIES[name])
    world.invalidate()
    claimed = world.claim(seen=0)
    assert claimed.status is ClaimStatus.CLAIMED
    assert claimed.number < 2**53
    reply = world.acquire(number=claimed.number)
    assert reply.status is AcquireStatus.ACQUIRED
    assert world.commit(reply.token) is CommitStatus.ACCEPTED
    assert world.entry().token == reply.token


def test_a_commit_overwrites_an_entry_key_of_another_type(world: World) -> None:
    world.client.lpush(world.key.entry, "x")
    world.claim(seen=0)
    assert world.commit(world.acquire().token) is CommitStatus.ACCEPTED
    assert world.client.type(world.key.entry) == b"string"


def test_a_commit_with_a_record_of_another_type_fails_and_writes_nothing(world: World) -> None:
    world.client.set(world.key.record, "x")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        world.commit(1)
    assert world.entry() is None


def test_a_number_that_lua_would_round_is_never_drawn(world: World) -> None:
    world.plant(2**53 - 10)
    drawn = [world.claim(f"claim-{n}").number for n in range(3)]
    assert drawn == [2**53 - 9, 2**53 - 8, 2**53 - 7]
    assert world.record()["number"] == str(2**53 - 7).encode()


def test_every_script_is_loaded_under_the_hash_of_its_source(world: World) -> None:
    for name in SCRIPTS:
        assert world.client.script_load(lease_store.source(name)) == lease_store.sha_of(name)


def test_durations_reach_the_scripts_in_their_units(world: World) -> None:
    token = world.acquire().token
    call = commit(world.key, token, b"nonce--1")
    assert call.args[3:5] == (int(HARD_TTL_SECONDS * 1_000), int(RETENTION_SECONDS * 1_000))
    shortest = lease.claim(world.key, claim_id="c", seen_token=None, queue_ttl_seconds=0.0001, retention_seconds=0)
    assert shortest.args[2:4] == (100, 1)
