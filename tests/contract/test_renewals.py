"""A lease is renewed before it runs out, also when the entry has taught a longer one than acquire could grant."""

from __future__ import annotations

import pytest

from api_client import lease
from api_client.lease_store import LeaseStore
from refresher.renewals import HeldLease, Renewals
from tests.support.lease_world import World
from tests.support.waiting import eventually


def held_for(world: World, store: LeaseStore, granted_seconds: float, lease_seconds: float) -> HeldLease:
    reply = store.run(
        lease.acquire(
            world.key, nonce=b"nonce--1", claim_number=0, ticket="",
            lease_seconds=granted_seconds, budget_seconds=600, retention_seconds=60,
        )
    )  # fmt: skip
    return HeldLease(world.key, reply.token, b"nonce--1", reply.left_seconds, lease_seconds)


def left_us(world: World) -> int:
    seconds, microseconds = world.client.time()
    return int(world.record()["until"]) - (seconds * 1_000_000 + microseconds)


def test_the_first_renewal_comes_within_what_acquire_granted(world: World) -> None:
    store = LeaseStore(world.client)
    renewals = Renewals(store)
    held = held_for(world, store, granted_seconds=0.9, lease_seconds=300.0)
    with renewals.holding(held):
        eventually(lambda: left_us(world) > 200_000_000, 5, "the lease is as long as was learned")
    assert not held.lost
    renewals.close()


def test_an_error_of_any_kind_does_not_end_the_renewals(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LeaseStore(world.client)
    renewals = Renewals(store)
    real, failures = store.run_all, iter([AttributeError("a connection that is being lost")])

    def run_all(calls: list[lease.Call[float]]) -> list[float]:
        for failure in failures:
            raise failure
        return real(calls)

    monkeypatch.setattr(store, "run_all", run_all)
    held = held_for(world, store, granted_seconds=3.0, lease_seconds=1.0)
    with renewals.holding(held):
        before = world.record()["until"]
        eventually(lambda: world.record()["until"] != before, 5, "it is renewed after the error")
    renewals.close()
