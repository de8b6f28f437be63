"""Renewals of leases: in time, even when the lease learned from the entry is longer than acquire could grant."""

from __future__ import annotations

import math

import pytest

from api_client.protocol import lease
from api_client.transport.scripts import LeaseStore
from refresher.flow.renewals import HeldLease, Renewals
from tests.support.internals import wake_up_of, wakes_at
from tests.support.lease_world import ClockedWorld, World
from tests.support.waiting import eventually


def held_for(world: World, store: LeaseStore, granted_seconds: float, lease_seconds: float) -> HeldLease:
    reply = store.run(
        lease.acquire(
            world.key, nonce=b"nonce--1", claim_number=0, ticket="",
            lease_seconds=granted_seconds, limit_seconds=600, retention_seconds=60,
        )
    )  # fmt: skip
    return HeldLease(world.key, reply.token, b"nonce--1", reply.left_seconds, lease_seconds)


def left_us(world: World) -> int:
    seconds, microseconds = world.client.time()
    return int(world.record()["until"]) - (seconds * 1_000_000 + microseconds)


def test_the_first_renewal_comes_within_the_lease_that_acquire_granted(clocked_world: ClockedWorld) -> None:
    store = LeaseStore(clocked_world.client)
    renewals = Renewals(store.run_all)
    held = held_for(clocked_world, store, granted_seconds=0.9, lease_seconds=300.0)
    with renewals.holding([held]):
        eventually(lambda: left_us(clocked_world) > 200_000_000, "the lease has its learned length")
    assert not held.lost
    renewals.close()


def test_an_error_of_any_kind_does_not_end_the_renewals(
    clocked_world: ClockedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LeaseStore(clocked_world.client)
    renewals = Renewals(store.run_all)
    real, failures = store.run_all, iter([AttributeError("a connection that is being lost")])

    def run_all(calls: list[lease.Call[float]]) -> list[float]:
        for failure in failures:
            raise failure
        return real(calls)

    held = held_for(clocked_world, store, granted_seconds=3.0, lease_seconds=1.0)
    monkeypatch.setattr(store, "run_all", run_all)
    before = clocked_world.record()["until"]
    with renewals.holding([held]):
        eventually(lambda: clocked_world.record()["until"] != before, "it is renewed after the error")
    renewals.close()


def test_a_short_lease_is_renewed_in_time_while_the_thread_waits_for_a_long_one(clocked_world: ClockedWorld) -> None:
    store = LeaseStore(clocked_world.client)
    renewals = Renewals(store.run_all)
    long = HeldLease(clocked_world.key, 1, b"nonce--0", 600.0, 600.0)
    with renewals.holding([long]):
        eventually(lambda: 0 < wakes_at(renewals) < math.inf, "the thread waits for the long one")
        short = held_for(clocked_world, store, granted_seconds=0.9, lease_seconds=300.0)
        with renewals.holding([short]):
            eventually(lambda: left_us(clocked_world) > 200_000_000, "the short one is renewed")
    renewals.close()


def test_a_run_that_ends_before_its_renewal_does_not_wake_the_thread(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewals = Renewals(LeaseStore(world.client).run_all)
    with renewals.holding([HeldLease(world.key, 1, b"nonce--0", 600.0, 600.0)]):
        eventually(lambda: 0 < wakes_at(renewals) < math.inf, "the thread waits")
        with monkeypatch.context() as patched:
            patched.setattr(wake_up_of(renewals), "notify", lambda: pytest.fail("the thread was woken"))
            with renewals.holding([HeldLease(world.key, 1, b"nonce--1", 6_000.0, 6_000.0)]):
                pass
    renewals.close()
