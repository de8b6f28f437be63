"""Leftovers of lease steps, and how steps treat existing data: garbage, older data, limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api_client.protocol import lease
from api_client.protocol.lease import AcquireStatus, ClaimStatus
from tests.support.lease_world import World

OTHER = b"nonce--2"


@pytest.mark.parametrize("field", ["token", "generation"])
@pytest.mark.parametrize(("value", "is_read"), [(0, True), (2**53 - 1, True), (2**53, False), (2**63, False)])
def test_only_numbers_that_lua_represents_exactly_are_read(world: World, field: str, value: int, is_read: bool) -> None:
    world.plant(7)
    offset = {"token": 20, "generation": 28}[field]
    world.client.setrange(world.key.entry, offset, value.to_bytes(8, "big"))
    status = world.claim(seen=12345).status
    assert status is (ClaimStatus.ALREADY_REFRESHED if is_read else ClaimStatus.CLAIMED)


@pytest.mark.parametrize(
    ("limit", "given", "kept"),
    [
        (11, ["first", "other"], "first\nother"),  # exactly the limit
        (10, ["first", "other"], "other"),
        (3, ["first", "other"], "other"),  # the newest is kept whole, whatever the limit
        (12, ["a", "bcd", "efghijk"], "bcd\nefghijk"),
        (13, ["a", "bcd", "efghijk"], "a\nbcd\nefghijk"),
    ],
)
def test_bookmarks_are_dropped_whole_and_only_beyond_the_limit(
    world: World, limit: int, given: list[str], kept: str
) -> None:
    for bookmark in given:
        call = lease.invalidate(world.key, hard=False, bookmarks=[bookmark], retention_seconds=60)
        world.store.run(replace(call, args=(*call.args[:2], limit, *call.args[3:])))
    assert world.record()["bookmarks"].decode() == kept


@pytest.mark.parametrize("newer", ["the message", "an invalidation"])
def test_an_acquire_is_granted_if_its_message_or_an_invalidation_is_newer_than_the_entry(
    world: World, newer: str
) -> None:
    number = world.claim().number
    requested = number + 10 if newer == "the message" else number
    if newer == "an invalidation":
        world.invalidate()
    world.plant(number + 5)  # data from before the claim came back under a number above it
    assert world.acquire(number=requested).status is AcquireStatus.ACQUIRED
