"""Commits of unchanged values: a new header before the existing payload, or no change at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from api_client.protocol import lease
from api_client.protocol.entry import decode_header, encode
from api_client.protocol.lease import CommitStatus
from tests.support.lease_world import FOREIGN_ENTRIES, HARD_TTL_SECONDS, LIMIT_SECONDS, PAYLOAD, World, a_header

OLD, NEW, OTHER = b"nonce--0", b"nonce--1", b"nonce--2"
OLD_TOKEN = 1_000
TAGGED = b"\x91\xa1t"


def plant(world: World, token: int = OLD_TOKEN, nonce: bytes = OLD, payload: bytes = PAYLOAD) -> None:
    """Store an entry whose header is longer than the minimum."""
    header = a_header(token, nonce, encoded_tags=TAGGED)
    world.client.set(world.key.entry, encode(header, world.key.digest, payload), px=50_000)


def raw(world: World) -> bytes:
    return world.client.get(world.key.entry)


def payload_of(world: World) -> bytes:
    return raw(world)[decode_header(raw(world), world.key.digest).length :]


@pytest.fixture
def token(world: World) -> int:
    """The token of a run whose load has found the entry unchanged."""
    plant(world)
    return world.acquire(NEW, number=OLD_TOKEN).token


def test_an_unchanged_commit_replaces_the_header_and_keeps_the_payload(world: World, token: int) -> None:
    assert world.prolong(token, NEW, OLD, degree=12) is CommitStatus.ACCEPTED
    assert raw(world) == encode(a_header(token, NEW, degree=12), world.key.digest, PAYLOAD)
    assert HARD_TTL_SECONDS * 1_000 - 60_000 < world.look().entry_ms <= HARD_TTL_SECONDS * 1_000
    assert world.record() == {}


def test_an_unchanged_commit_repeated_after_a_lost_reply_is_accepted_again(world: World, token: int) -> None:
    assert [world.prolong(token, NEW, OLD) for _ in range(2)] == [CommitStatus.ACCEPTED] * 2
    assert payload_of(world) == PAYLOAD


def test_an_unchanged_commit_is_stale_after_a_soft_invalidation_and_rejected_after_a_hard_one(
    world: World, token: int
) -> None:
    generation = world.invalidate()
    assert world.prolong(token, NEW, OLD) is CommitStatus.ACCEPTED_AS_STALE
    header = decode_header(raw(world), world.key.digest)
    assert (header.token, header.generation, payload_of(world)) == (token, generation, PAYLOAD)

    token = world.acquire(OTHER, number=generation).token
    world.invalidate(hard=True)
    assert world.prolong(token, OTHER, NEW) is CommitStatus.INVALIDATED
    assert world.entry() is None


def test_an_overtaken_run_cannot_prolong_the_entry(world: World, token: int) -> None:
    world.pass_time(LIMIT_SECONDS)
    world.acquire(OTHER, number=OLD_TOKEN)
    before = raw(world)
    assert world.prolong(token, NEW, OLD) is CommitStatus.SUPERSEDED
    assert raw(world) == before


GONE: dict[str, Callable[[World], object]] = {
    "evicted": lambda world: world.client.delete(world.key.entry),
    "an older one since a failover": lambda world: plant(world, OLD_TOKEN - 1, OTHER, b"\xa5older"),
    "of the same token": lambda world: plant(world, OLD_TOKEN, OTHER),
    "no entry": lambda world: world.client.set(world.key.entry, FOREIGN_ENTRIES["text"](b""), px=50_000),
}


@pytest.mark.promise("Protocol", "An unchanged value is prolonged only if it is the one that the run has seen")
@pytest.mark.parametrize("gone", GONE.values(), ids=GONE)
def test_an_unchanged_commit_over_another_entry_changes_nothing_and_the_run_goes_on(
    world: World, token: int, gone: Callable[[World], object]
) -> None:
    gone(world)
    before = world.look()
    assert world.prolong(token, NEW, OLD) is CommitStatus.PREVIOUS_GONE
    after = world.look()
    assert (after.raw_entry, after.record) == (before.raw_entry, before.record)
    assert world.store.run(lease.read_payload(world.key, nonce=OLD)) == b""
    assert world.renew(token, NEW) > 0
    assert world.commit(token, NEW) is CommitStatus.ACCEPTED


def test_a_payload_can_be_read_only_by_the_nonce_of_its_entry(world: World, token: int) -> None:
    assert world.store.run(lease.read_payload(world.key, nonce=OLD)) == PAYLOAD
    assert world.store.run(lease.read_payload(world.key, nonce=NEW)) == b""
