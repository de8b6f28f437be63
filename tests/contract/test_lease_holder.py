"""The owner in a lease record: its claimer, then its worker. For people; no step reads it."""

from __future__ import annotations

import pytest

from api_client.protocol import lease
from tests.support.lease_world import World

TIMES = {"retention_seconds": 60_000.0}


def claim(world: World, claim_id: str, by: str | None) -> None:
    world.store.run(lease.claim(world.key, claim_id=claim_id, seen_token=None, queue_ttl_seconds=600, by=by, **TIMES))


def acquire(world: World, nonce: bytes, by: str | None) -> int:
    call = lease.acquire(
        world.key, nonce=nonce, claim_number=0, ticket="", lease_seconds=600, limit_seconds=600, by=by, **TIMES
    )
    return world.store.run(call).token


def holder(world: World) -> str | None:
    by = world.record().get("by")
    return None if by is None else by.decode()


def test_a_record_names_its_claimer_then_its_worker_until_cooling_ends(world: World) -> None:
    claim(world, "first", "reader:1")
    assert holder(world) == "reader:1"
    claim(world, "second", "reader:2")
    assert holder(world) == "reader:1", "a claim that is refused changes nothing"
    token = acquire(world, b"nonce--1", "celery@node:7")
    assert holder(world) == "celery@node:7"
    assert acquire(world, b"nonce--1", "celery@node:7") == token
    world.fail(token)
    assert holder(world) == "celery@node:7"
    world.invalidate()
    assert holder(world) is None, "no owner: the next reader may claim"


@pytest.mark.parametrize(
    ("by", "kept"),
    [("x" * 1_000, "x" * 200), ("a\x1b[31m\nb\0", "a[31mb"), ("", ""), ("wörker@höst:1", "wörker@höst:1")],
)
def test_an_owner_s_name_is_printable_and_bounded(world: World, by: str, kept: str) -> None:
    claim(world, "first", by)
    assert holder(world) == kept
