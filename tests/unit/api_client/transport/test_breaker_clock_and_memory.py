"""In-process state about Redis and the broker: breaker, clock, suppressed triggers, single flight."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import pytest
from freezegun import freeze_time

from api_client.errors import RefreshFailed, WaitTimeout
from api_client.protocol.clock import RedisClock, monotonic_seconds
from api_client.protocol.xfetch import should_refresh
from api_client.read.coalescing import SingleFlight
from api_client.transport.breaker import Breaker
from api_client.trigger.suppression import TriggerSuppressor
from tests.support.clock import Time
from tests.support.internals import flights_of
from tests.support.waiting import MAX_WAIT_SECONDS, eventually


@pytest.fixture
def breaker(time: Time) -> Breaker:
    return Breaker(threshold=3, first_pause_seconds=1.0, max_pause_seconds=4.0, monotonic=time)


def fail(breaker: Breaker, times: int) -> None:
    for _ in range(times):
        breaker.failed()


def test_a_breaker_opens_at_threshold_failures_in_a_row(breaker: Breaker) -> None:
    fail(breaker, 2)
    assert (breaker.allows(), breaker.is_open) == (True, False)
    breaker.succeeded()
    fail(breaker, 2)
    assert breaker.allows()
    fail(breaker, 1)
    assert (breaker.allows(), breaker.is_open) == (False, True)


def test_an_open_breaker_allows_one_probe_per_pause(breaker: Breaker, time: Time) -> None:
    fail(breaker, 3)
    time.now += 0.99
    assert not breaker.allows()
    time.now += 0.02
    assert [breaker.allows() for _ in range(3)] == [True, False, False]
    time.now += 1.01
    assert breaker.allows(), "a probe that never reports does not block forever"


def test_a_breaker_s_pause_doubles_up_to_its_maximum_and_is_reset_by_a_success(breaker: Breaker, time: Time) -> None:
    fail(breaker, 3)
    for pause in (1.0, 2.0, 4.0, 4.0):
        time.now += pause - 0.01
        assert not breaker.allows()
        time.now += 0.02
        assert breaker.allows()
        breaker.failed()
    time.now += 4.01
    assert breaker.allows()
    breaker.succeeded()
    assert (breaker.allows(), breaker.is_open) == (True, False)
    fail(breaker, 3)
    time.now += 1.01
    assert breaker.allows()


def test_redis_clock_is_an_offset_taken_at_the_middle_of_the_round_trip(time: Time) -> None:
    clock = RedisClock(time)
    assert not clock.is_known
    with pytest.raises(RuntimeError, match="never synced"):
        clock.now_us()
    asked_at = time.now
    time.now += 0.2
    clock.sync(5_000_000_000, asked_at=asked_at)
    assert clock.now_us() == 5_000_100_000
    time.now += 10
    assert clock.now_us() == 5_010_100_000


def test_a_sync_of_redis_clock_is_due_every_ten_seconds_for_one_caller(time: Time) -> None:
    clock = RedisClock(time)
    assert [clock.is_due_once(), clock.is_due_once()] == [True, True]  # every caller needs the first sync
    clock.sync(1, asked_at=time.now)
    time.now += 9.9
    assert not clock.is_due_once()
    time.now += 0.2
    assert [clock.is_due_once(), clock.is_due_once()] == [True, False]
    time.now += 1.1
    assert clock.is_due_once()
    clock.sync(1, asked_at=time.now)
    assert not clock.is_due_once()
    clock.forget()
    assert clock.is_due_once()


def test_a_sync_of_a_doubted_redis_clock_is_due_at_most_once_per_second(time: Time) -> None:
    clock = RedisClock(time)
    clock.sync(1, asked_at=time.now)
    ahead_us = 3_600_000_000
    clock.check_against(ahead_us)
    assert not clock.is_due_once()
    time.now += 1.1
    assert clock.is_due_once()
    clock.check_against(ahead_us)
    assert not clock.is_due_once()  # a sync is under way
    clock.sync(1, asked_at=time.now)
    time.now += 5.0
    assert not clock.is_due_once()  # a doubt is over when the clock has been synced
    clock.check_against(clock.now_us() + 1_000_000)
    assert not clock.is_due_once()  # clocks may differ by that much
    clock.check_against(clock.now_us() + 1_000_001)
    assert [clock.is_due_once(), clock.is_due_once()] == [True, False]


NOON = datetime(2026, 11, 21, 12)


@pytest.mark.parametrize("skew_hours", [-1, 0, 1])
def test_a_wrong_wall_clock_of_the_host_does_not_change_refresh_decisions(skew_hours: int) -> None:
    redis_us = 1_795_262_400_000_000
    with freeze_time(NOON + timedelta(hours=skew_hours)) as frozen:
        clock = RedisClock()
        clock.sync(redis_us, asked_at=monotonic_seconds())
        decisions = []
        for _ in range(4):
            frozen.tick(timedelta(seconds=20))
            decisions.append(
                should_refresh(
                    clock.now_us(), redis_us + 70_000_000, delta_seconds=10.0, beta=1.0, ttl_seconds=70.0, u=0.2
                )
            )
    assert decisions == [False, False, True, True]


def test_redis_clock_advances_only_with_the_monotonic_clock() -> None:
    with freeze_time(NOON) as frozen:
        clock = RedisClock()
        clock.sync(7_000_000, asked_at=monotonic_seconds())
        assert clock.now_us() == clock.now_us() == 7_000_000
        frozen.tick(timedelta(seconds=3))
        assert clock.now_us() == 10_000_000


def test_a_repeated_trigger_is_suppressed_for_the_given_time_and_at_most_one_second(time: Time) -> None:
    suppressor = TriggerSuppressor(monotonic=time)
    assert suppressor.try_mark("k", 7, 0.3)
    assert (suppressor.is_suppressed("k", 7), suppressor.try_mark("k", 7, 0.3)) == (True, False)
    time.now += 0.31
    assert not suppressor.is_suppressed("k", 7)
    assert suppressor.try_mark("k", 7, 60.0)
    time.now += 0.99
    assert suppressor.is_suppressed("k", 7)
    time.now += 0.02
    assert suppressor.try_mark("k", 7, 60.0)


def test_a_trigger_for_another_token_or_key_is_not_suppressed(time: Time) -> None:
    suppressor = TriggerSuppressor(monotonic=time)
    suppressor.try_mark("k", 7, 1.0)
    assert not suppressor.is_suppressed("k", 8)
    assert not suppressor.is_suppressed("another", 7)
    assert suppressor.try_mark("k", 8, 1.0)


def test_an_update_replaces_a_suppression_mark(time: Time) -> None:
    suppressor = TriggerSuppressor(monotonic=time)
    suppressor.try_mark("k", 7, 1.0)
    suppressor.update("k", 7, 0.0)
    assert not suppressor.is_suppressed("k", 7)


def test_suppression_marks_are_bounded_and_the_oldest_is_dropped(time: Time) -> None:
    suppressor = TriggerSuppressor(monotonic=time, max_keys=3)
    for key in "abcd":
        suppressor.try_mark(key, 1, 1.0)
    assert [suppressor.is_suppressed(key, 1) for key in "abcd"] == [False, True, True, True]


@pytest.fixture
def flights() -> SingleFlight:
    return SingleFlight(monotonic_seconds)


class Lead:
    """A wait that lasts until the test lets it end."""

    def __init__(self, *outcomes: bytes | Exception) -> None:
        self.outcomes = list(outcomes)
        self.timeouts: list[float] = []
        self.go = threading.Semaphore(0)

    def __call__(self, timeout_seconds: float, read_begins: Callable[[], None]) -> bytes:
        self.timeouts.append(timeout_seconds)
        assert self.go.acquire(timeout=MAX_WAIT_SECONDS)
        read_begins()
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def all_wait(flights: SingleFlight, lead: Lead, timeouts: list[float], release: int) -> list[object]:
    """Let one reader per timeout share a flight, the first leading; return their results or errors in order."""
    with ThreadPoolExecutor(len(timeouts)) as pool:
        first = pool.submit(flights.share, "k", timeouts[0], lead)
        eventually(lambda: lead.timeouts, "the leader")
        others = [pool.submit(flights.share, "k", timeout, lead) for timeout in timeouts[1:]]
        eventually(lambda: len(waiters(flights)) == len(others), "the followers")
        for _ in range(release):
            lead.go.release()
        return [future.exception(10) or future.result() for future in (first, *others)]


def waiters(flights: SingleFlight) -> list[object]:
    return [waker for flight in flights_of(flights) for waker in flight.waiting]


def test_followers_share_the_leader_s_bytes(flights: SingleFlight) -> None:
    lead = Lead(b"value")
    results = all_wait(flights, lead, [10.0] * 5, release=1)
    assert results == [(b"value", False), *[(b"value", True)] * 4]
    assert len(lead.timeouts) == 1
    assert flights_of(flights) == []


def test_followers_share_the_leader_s_error(flights: SingleFlight) -> None:
    error = RefreshFailed("q", "syntax", 1, 30.0)
    leader, *followers = all_wait(flights, Lead(error), [10.0] * 3, release=1)
    assert leader is error
    assert [(type(each), str(each)) for each in followers] == [(RefreshFailed, str(error))] * 2


def test_a_leader_whose_time_ran_out_passes_the_lead_on(flights: SingleFlight) -> None:
    lead = Lead(WaitTimeout("q", 1.0, "queued"), b"value", b"value", b"value")
    results = all_wait(flights, lead, [1.0, 10.0, 10.0], release=4)
    assert isinstance(results[0], WaitTimeout)
    assert {result[0] for result in results[1:]} == {b"value"}
    assert 1 < len(lead.timeouts) <= 3
    assert lead.timeouts[0] <= 1.0
    assert 5 < lead.timeouts[1] <= 10.0, "the next leader waits for the rest of its own timeout"


def test_a_follower_waits_no_longer_than_its_own_timeout(flights: SingleFlight) -> None:
    lead = Lead(b"value")
    with ThreadPoolExecutor(1) as pool:
        leader = pool.submit(flights.share, "k", 10.0, lead)
        eventually(lambda: lead.timeouts, "the leader")
        with pytest.raises(TimeoutError):
            flights.share("k", 0.01, lead)
        lead.go.release()
        assert leader.result(MAX_WAIT_SECONDS) == (b"value", False)


def test_keys_do_not_wait_for_each_other(flights: SingleFlight) -> None:
    def inner(_: float, read_begins: Callable[[], None]) -> bytes:
        read_begins()
        return b"inner"

    assert flights.share("a", 1.0, lambda *_: flights.share("b", 1.0, inner)[0]) == (b"inner", False)


def test_a_follower_takes_no_bytes_whose_read_had_begun_before_it_came(flights: SingleFlight) -> None:
    # They could be from before an invalidation that it knows of.
    reading, end = threading.Event(), threading.Event()

    def old(_: float, read_begins: Callable[[], None]) -> bytes:
        read_begins()
        reading.set()
        assert end.wait(MAX_WAIT_SECONDS)
        return b"old"

    def new(_: float, read_begins: Callable[[], None]) -> bytes:
        read_begins()
        return b"new"

    with ThreadPoolExecutor(2) as pool:
        leader = pool.submit(flights.share, "k", 10.0, old)
        assert reading.wait(MAX_WAIT_SECONDS)
        late = pool.submit(flights.share, "k", 10.0, new)
        eventually(lambda: waiters(flights), "the late one follows")
        end.set()
        assert leader.result(MAX_WAIT_SECONDS) == (b"old", False)
        assert late.result(MAX_WAIT_SECONDS) == (b"new", False)
