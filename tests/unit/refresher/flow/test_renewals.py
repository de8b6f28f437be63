"""Until when a lease is renewed: it is lost, or let go, or the process ends. What Redis answers is played."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import cast

import pytest

from api_client.errors import CacheUnavailable
from api_client.protocol.keys import make_key
from api_client.protocol.lease import Call
from refresher.flow.renewals import HeldLease, Renewals
from tests.support.waiting import eventually

KEY = make_key("cache", "q", {"n": 1}, 1)


class ScriptedStore:
    """Answers renewals.

    ``asked``: the nonces of each call; ``lost``: those whose lease another has; ``away``: those whose node is.
    """

    def __init__(self) -> None:
        self.asked: list[set[bytes]] = []
        self.lost: set[bytes] = set()
        self.away: set[bytes] = set()

    def run_each(self, calls: Sequence[Call[float]]) -> list[float | CacheUnavailable]:
        nonces = [cast("bytes", call.args[1]) for call in calls]
        self.asked.append(set(nonces))
        return [self._reply(nonce) for nonce in nonces]

    def _reply(self, nonce: bytes) -> float | CacheUnavailable:
        if nonce in self.away:
            return CacheUnavailable("no answer")
        return 0.0 if nonce in self.lost else 30.0

    def goes_on(self) -> list[set[bytes]]:
        """Wait for three more calls, and return them."""
        before = len(self.asked)
        eventually(lambda: len(self.asked) >= before + 3, "renewals")
        return self.asked[before : before + 3]


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


def test_a_lease_that_another_has_is_lost_and_asked_for_no_more(store: ScriptedStore, renewals: Renewals) -> None:
    store.lost.add(b"lost")
    with renewals.holding([lost := due(b"lost")]), renewals.holding([mine := due(b"mine")]):
        eventually(lambda: lost.lost, "it is told")
        store.goes_on()  # one may have been under way
        assert store.goes_on() == [{b"mine"}] * 3
        assert not mine.lost


def test_a_lease_that_was_let_go_is_not_renewed(store: ScriptedStore, renewals: Renewals) -> None:
    with renewals.holding([due(b"mine")]):
        with renewals.holding([due(b"gone")]):
            store.goes_on()
        store.goes_on()
        assert store.goes_on() == [{b"mine"}] * 3


def test_a_lease_is_not_renewed_before_a_third_of_its_time(store: ScriptedStore, renewals: Renewals) -> None:
    with renewals.holding([not_due(b"later")]), renewals.holding([due(b"mine")]):
        assert store.goes_on() == [{b"mine"}] * 3


def test_one_thread_renews_all_and_closing_ends_it_at_once(store: ScriptedStore) -> None:
    renewals, before = Renewals(store.run_each), set(threading.enumerate())
    with renewals.holding([not_due(b"one")]), renewals.holding([not_due(b"two")]):
        (thread,) = set(threading.enumerate()) - before
        renewals.close()
        assert not thread.is_alive()
    assert store.asked == []


def test_what_has_held_nothing_has_nothing_to_close(store: ScriptedStore) -> None:
    Renewals(store.run_each).close()
    assert store.asked == []


def test_a_node_that_is_away_costs_only_its_own_lease_and_is_asked_again_soon(
    store: ScriptedStore, renewals: Renewals, caplog: pytest.LogCaptureFixture
) -> None:
    store.away.add(b"away")
    store.lost.add(b"lost")
    away = HeldLease(KEY, 1, b"away", granted_seconds=0.0, lease_seconds=600.0)
    with renewals.holding([away, lost := due(b"lost")]):
        eventually(lambda: lost.lost, "the other one's reply is used")
        eventually(lambda: [b"away" in asked for asked in store.asked].count(True) >= 3, "it is asked again")
        assert not away.lost
    assert caplog.text.count("could not renew") == 1, "once for all failures in a row"
