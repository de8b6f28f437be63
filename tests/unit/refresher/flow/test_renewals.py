"""Renewals of a lease: until it is lost or released, or the process ends. Redis' replies are scripted."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from api_client.errors import CacheUnavailable
from api_client.protocol.keys import make_key
from api_client.protocol.lease import Call
from refresher.flow.renewals import HeldLease, Renewals
from tests.support.internals import wake_up_of, wakes_at
from tests.support.waiting import eventually

KEY = make_key("cache", "q", {"n": 1}, 1)


class ScriptedStore:
    """Replies to renewals.

    ``renewed``: the nonces of each call; ``lost``: those whose lease another run holds; ``unreachable``: those whose
    node is; ``requested_us``: the time that was last requested for each; ``errors``: what the next calls raise.
    """

    def __init__(self) -> None:
        self.renewed: list[set[bytes]] = []
        self.lost: set[bytes] = set()
        self.unreachable: set[bytes] = set()
        self.requested_us: dict[bytes, Any] = {}
        self.errors: list[Exception] = []

    def run_each(self, calls: Sequence[Call[float]]) -> list[float | CacheUnavailable]:
        if self.errors:
            raise self.errors.pop()
        requested = {call.args[1]: call.args[2] for call in calls}
        self.requested_us |= requested
        self.renewed.append(set(requested))
        return [self._reply(nonce) for nonce in requested]

    def _reply(self, nonce: bytes) -> float | CacheUnavailable:
        if nonce in self.unreachable:
            return CacheUnavailable("no answer")
        return 0.0 if nonce in self.lost else 30.0

    def goes_on(self) -> list[set[bytes]]:
        """Wait for three more calls, and return them."""
        before = len(self.renewed)
        eventually(lambda: len(self.renewed) >= before + 3, "renewals")
        return self.renewed[before : before + 3]


@pytest.fixture
def store() -> ScriptedStore:
    return ScriptedStore()


@pytest.fixture
def renewals(store: ScriptedStore) -> Iterator[Renewals]:
    made = Renewals(store.run_each)
    yield made
    made.close()


def due(nonce: bytes) -> HeldLease:
    """A lease that is due at once, and fifteen times a second after that."""
    return HeldLease(KEY, 1, nonce, granted_seconds=0.0, lease_seconds=0.2)


def not_due(nonce: bytes) -> HeldLease:
    return HeldLease(KEY, 1, nonce, granted_seconds=600.0, lease_seconds=600.0)


def test_a_lease_is_renewed_again_and_again(store: ScriptedStore, renewals: Renewals) -> None:
    with renewals.holding([held := due(b"mine")]):
        assert store.goes_on() == [{b"mine"}] * 3
        assert not held.lost


def test_a_lease_that_another_run_took_over_is_lost_and_no_longer_renewed(
    store: ScriptedStore, renewals: Renewals
) -> None:
    store.lost.add(b"lost")
    with renewals.holding([lost := due(b"lost")]), renewals.holding([mine := due(b"mine")]):
        eventually(lambda: lost.lost, "the loss is noticed")
        store.goes_on()  # one may have been under way
        assert store.goes_on() == [{b"mine"}] * 3
        assert not mine.lost


def test_a_released_lease_is_not_renewed(store: ScriptedStore, renewals: Renewals) -> None:
    with renewals.holding([due(b"mine")]):
        with renewals.holding([due(b"gone")]):
            store.goes_on()
        store.goes_on()
        assert store.goes_on() == [{b"mine"}] * 3


def test_a_lease_is_not_renewed_before_a_third_of_its_time(store: ScriptedStore, renewals: Renewals) -> None:
    with renewals.holding([not_due(b"later")]), renewals.holding([due(b"mine")]):
        assert store.goes_on() == [{b"mine"}] * 3


def test_the_first_renewal_comes_within_the_time_granted_and_requests_the_learned_one(
    store: ScriptedStore, renewals: Renewals
) -> None:
    learned = HeldLease(KEY, 1, b"learned", granted_seconds=0.0, lease_seconds=600.0)
    with renewals.holding([learned]), renewals.holding([due(b"mine")]):
        eventually(lambda: store.requested_us.get(b"learned") == 600_000_000, "it is renewed")
        assert store.goes_on() == [{b"mine"}] * 3, "and not for a third of that time"


def test_a_short_lease_is_renewed_in_time_while_the_thread_waits_for_a_long_one(
    store: ScriptedStore, renewals: Renewals
) -> None:
    with renewals.holding([not_due(b"long")]):
        eventually(lambda: 0 < wakes_at(renewals) < math.inf, "the thread waits for the long one")
        with renewals.holding([due(b"short")]):
            assert store.goes_on() == [{b"short"}] * 3


def test_a_run_that_ends_before_its_renewal_does_not_wake_the_thread(
    renewals: Renewals, monkeypatch: pytest.MonkeyPatch
) -> None:
    with renewals.holding([not_due(b"long")]):
        eventually(lambda: 0 < wakes_at(renewals) < math.inf, "the thread waits")
        with monkeypatch.context() as patched:
            patched.setattr(wake_up_of(renewals), "notify", lambda: pytest.fail("the thread was woken"))
            with renewals.holding([HeldLease(KEY, 1, b"longer", 6_000.0, 6_000.0)]):
                pass


def test_an_error_of_any_kind_does_not_end_the_renewals(store: ScriptedStore, renewals: Renewals) -> None:
    store.errors.append(AttributeError("a connection that is being lost"))
    with renewals.holding([held := due(b"mine")]):
        assert store.goes_on() == [{b"mine"}] * 3
        assert not held.lost


def test_one_thread_renews_all_and_closing_ends_it_at_once(store: ScriptedStore) -> None:
    renewals, before = Renewals(store.run_each), set(threading.enumerate())
    with renewals.holding([not_due(b"one")]), renewals.holding([not_due(b"two")]):
        (thread,) = set(threading.enumerate()) - before
        renewals.close()
        assert not thread.is_alive()
    assert store.renewed == []


def test_renewals_that_never_held_a_lease_can_be_closed(store: ScriptedStore) -> None:
    Renewals(store.run_each).close()
    assert store.renewed == []


def test_an_unreachable_node_affects_only_its_own_leases_and_is_retried_soon(
    store: ScriptedStore, renewals: Renewals, caplog: pytest.LogCaptureFixture
) -> None:
    store.unreachable.add(b"away")
    store.lost.add(b"lost")
    away = HeldLease(KEY, 1, b"away", granted_seconds=0.0, lease_seconds=600.0)
    with renewals.holding([away, lost := due(b"lost")]):
        eventually(lambda: lost.lost, "the other one's reply is used")
        eventually(lambda: [b"away" in nonces for nonces in store.renewed].count(True) >= 3, "it is tried again")
        assert not away.lost
    assert caplog.text.count("could not renew") == 1, "once for all failures in a row"
