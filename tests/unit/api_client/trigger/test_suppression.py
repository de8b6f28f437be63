"""One trigger per key: the suppressor, and the backlog of the publisher."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from api_client.protocol.keys import make_key
from api_client.protocol.messages import RefreshReason
from api_client.trigger.backlog import Backlog, Trigger
from api_client.trigger.suppression import TriggerSuppressor
from tests.support.internals import lock_of
from tests.support.timing import Time
from tests.support.waiting import MAX_WAIT_SECONDS


@pytest.fixture
def suppressor(time: Time) -> TriggerSuppressor:
    return TriggerSuppressor(monotonic=time)


def test_only_one_of_many_threads_triggers(suppressor: TriggerSuppressor) -> None:
    start = threading.Barrier(16)

    def read(_: int) -> list[bool]:
        start.wait(MAX_WAIT_SECONDS)
        return [suppressor.try_mark("k", 7, 1.0) for _ in range(200)]

    with ThreadPoolExecutor(16) as pool:
        marked = list(itertools.chain.from_iterable(pool.map(read, range(16))))
    assert marked.count(True) == 1


def test_a_repeated_trigger_is_suppressed_for_the_given_time_and_at_most_one_second(
    suppressor: TriggerSuppressor, time: Time
) -> None:
    assert suppressor.try_mark("k", 7, 0.3)
    assert (suppressor.is_suppressed("k", 7), suppressor.try_mark("k", 7, 0.3)) == (True, False)
    assert not suppressor.is_suppressed("another", 7)
    time.now += 0.31
    assert not suppressor.is_suppressed("k", 7)
    assert suppressor.try_mark("k", 7, 60.0)
    time.now += 0.99
    assert suppressor.is_suppressed("k", 7)
    time.now += 0.02
    assert suppressor.try_mark("k", 7, 60.0)


def test_suppression_marks_are_bounded_and_the_oldest_is_dropped(time: Time) -> None:
    suppressor = TriggerSuppressor(monotonic=time, max_keys=3)
    for key in "abcd":
        suppressor.try_mark(key, 1, 1.0)
    assert [suppressor.is_suppressed(key, 1) for key in "abcd"] == [False, True, True, True]


def test_a_suppressed_key_costs_no_lock(suppressor: TriggerSuppressor) -> None:
    suppressor.try_mark("k", 7, 1.0)
    with lock_of(suppressor), ThreadPoolExecutor(1) as pool:
        assert pool.submit(suppressor.try_mark, "k", 7, 1.0).result(MAX_WAIT_SECONDS) is False


def test_a_mark_is_that_of_the_newest_entry_until_a_reply_about_it_replaces_it(suppressor: TriggerSuppressor) -> None:
    assert suppressor.try_mark("k", 7, 1.0)
    assert suppressor.try_mark("k", 8, 1.0), "a newer one is triggered at once"
    assert not suppressor.try_mark("k", 7, 1.0), "by a late read of the old one"
    suppressor.update("k", 7, 0.0)
    assert not suppressor.try_mark("k", 8, 1.0)
    suppressor.update("k", 8, 0.0)
    assert not suppressor.is_suppressed("k", 8)


def test_an_older_entry_is_triggered_once_the_mark_has_expired(suppressor: TriggerSuppressor, time: Time) -> None:
    # A failover may bring an older entry back.
    suppressor.try_mark("k", 8, 1.0)
    time.now += 1.01
    assert suppressor.try_mark("k", 7, 1.0)


def test_left_seconds_is_how_long_a_mark_lasts(suppressor: TriggerSuppressor, time: Time) -> None:
    assert suppressor.left_seconds("k") == 0
    suppressor.try_mark("k", 7, 0.4)
    time.now += 0.1
    assert suppressor.left_seconds("k") == pytest.approx(0.3)
    time.now += 1
    assert suppressor.left_seconds("k") == 0


def trigger(n: int, **changes: object) -> Trigger:
    return Trigger(make_key("t", "q", {"n": n}, 1), RefreshReason.STALE, **changes)  # type: ignore[arg-type]


def numbers(triggers: list[Trigger]) -> list[int]:
    return [trigger.key.params["n"] for trigger in triggers]


def test_a_key_has_one_place_in_the_backlog_and_the_newest_trigger_has_it() -> None:
    backlog = Backlog(capacity=2)
    for token, n in enumerate((1, 2, 1, 1)):
        assert backlog.put(trigger(n, seen_token=token))
    assert len(backlog) == 2
    taken = backlog.take(10)
    assert numbers(taken) == [1, 2]
    assert [each.seen_token for each in taken] == [3, 1]


def test_a_full_backlog_accepts_only_triggers_with_a_waiter() -> None:
    backlog = Backlog(capacity=1)
    assert [backlog.put(trigger(n)) for n in (1, 2)] == [True, False]
    assert backlog.put(trigger(3, has_waiter=True, claim_id="c", claim_number=1))
    assert numbers(backlog.take(10)) == [3], "triggers with a waiter first, in a batch of their own"
    assert numbers(backlog.take(10)) == [1]


def test_two_claims_of_one_key_have_two_places_in_the_backlog() -> None:
    backlog = Backlog(capacity=5)
    for claim_id in ("a", "b"):
        backlog.put(trigger(1, claim_id=claim_id, claim_number=1, has_waiter=True))
    assert [each.claim_id for each in backlog.take(5)] == ["a", "b"]


def test_a_batch_from_the_backlog_is_bounded_and_takes_the_oldest_first() -> None:
    backlog = Backlog(capacity=100)
    for n in range(5):
        backlog.put(trigger(n))
    assert [numbers(backlog.take(2)) for _ in range(4)] == [[0, 1], [2, 3], [4], []]
