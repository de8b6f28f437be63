"""Backpressure by queue length: dropped and delayed triggers, the duration of claims, the polls of the length."""

from __future__ import annotations

import math

import pytest

from api_client import ReaderSettings
from api_client.transport.breaker import Breaker
from api_client.trigger.backlog import TriggerDropped
from api_client.trigger.backpressure import LENGTH_CACHED_SECONDS, MAX_CLAIM_TIMES, Backpressure
from tests.support.publisher_harness import ScriptedBroker


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def script() -> ScriptedBroker:
    return ScriptedBroker()


def pressure_of(script: ScriptedBroker, clock: Clock, **settings: object) -> Backpressure:
    breaker = Breaker(threshold=3, monotonic=clock)
    return Backpressure(ReaderSettings(**settings), script, breaker, monotonic=clock)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("bound", "waiting", "early", "repeats", "times"),
    [
        (100, 0, 100, 100, 1),
        (100, 99, 1, 1, 1),
        (100, 100, 0, 0, 1),
        (100, 199, 0, 0, 1),
        (100, 200, 0, 0, 2),
        (100, 999, 0, 0, 9),
        (100, 1_000_000, 0, 0, MAX_CLAIM_TIMES),
        (0, 0, 0, 1, 1),  # no early refresh at all; a lost message is republished nevertheless
        (0, 1, 0, 0, 1),
        (0, 5, 0, 0, 5),
    ],
)
def test_room_and_claim_time_follow_from_the_queue_length(
    script: ScriptedBroker, clock: Clock, bound: int, waiting: int, early: int, repeats: int, times: int
) -> None:
    pressure = pressure_of(script, clock, queue_size=bound, queue_ttl_seconds=7.0)
    script.length = waiting
    assert pressure.claim_seconds() == 7.0  # nothing is known yet
    assert pressure.room_for_early() == early
    assert pressure.room_for_repeats(has_waiter=False) == repeats
    assert pressure.claim_seconds() == 7.0 * times
    assert script.length_polls == 1


def test_the_queue_of_misses_has_a_length_and_room_of_its_own(script: ScriptedBroker, clock: Clock) -> None:
    pressure = pressure_of(script, clock, queue_size=10)
    script.length, script.misses = 3, 50
    assert pressure.room_for_repeats(has_waiter=True) == 0
    assert pressure.known_length is None
    assert pressure.room_for_repeats(has_waiter=False) == 7
    assert pressure.claim_seconds() == 60  # by the length of the queue that it is published to
    assert pressure.known_length == 3


def test_a_queue_length_is_cached_for_a_quarter_second_plus_what_was_published_since(
    script: ScriptedBroker, clock: Clock
) -> None:
    pressure = pressure_of(script, clock, queue_size=10)
    script.length = 4
    pressure.refresh_queue_length()
    pressure.published(3, 3, has_waiter=False)
    pressure.published(5, 5, has_waiter=True)
    script.length = 0
    clock.now += LENGTH_CACHED_SECONDS * 0.9
    assert pressure.room_for_early() == 3
    assert 0 < pressure.known_for_seconds < LENGTH_CACHED_SECONDS / 4
    clock.now += LENGTH_CACHED_SECONDS * 0.2
    assert pressure.room_for_early() == 10
    assert script.length_polls == 2


def test_publications_without_a_recently_polled_queue_length_do_not_lengthen_claims(
    script: ScriptedBroker, clock: Clock
) -> None:
    pressure = pressure_of(script, clock, queue_size=10, queue_ttl_seconds=60)
    for _ in range(1_000):
        pressure.published(1, 1, has_waiter=False)
        clock.now += 1.0
        assert pressure.claim_seconds() == 60
    pressure.refresh_queue_length()
    for _ in range(1_000):
        clock.now += 0.01
        pressure.published(1, 1, has_waiter=False)
    assert pressure.claim_seconds() == 60 * 2  # only those of the first quarter second


def test_a_queue_length_older_than_a_minute_does_not_lengthen_claims(script: ScriptedBroker, clock: Clock) -> None:
    pressure = pressure_of(script, clock, queue_size=10, queue_ttl_seconds=60)
    script.length = 1_000
    pressure.refresh_queue_length()
    clock.now += 60
    assert pressure.claim_seconds() == 600
    clock.now += 1
    assert pressure.claim_seconds() == 60


def test_an_unreachable_broker_raises_until_the_breaker_opens_and_is_then_not_polled(
    script: ScriptedBroker, clock: Clock
) -> None:
    pressure = pressure_of(script, clock)
    script.length = OSError("no")
    pressure.refresh_queue_length()
    with pytest.raises(OSError, match="no"):
        pressure.room_for_early()
    with pytest.raises(OSError, match="no"):
        pressure.room_for_repeats(has_waiter=False)
    with pytest.raises(TriggerDropped) as dropped:
        pressure.room_for_repeats(has_waiter=False)
    assert dropped.value.reason == "OSError: no"
    assert script.length_polls == 3
    assert pressure.claim_seconds() == 60


class Polls:
    """Polls four times a second of a queue whose bound is 20."""

    def __init__(self, script: ScriptedBroker, clock: Clock) -> None:
        self._script, self._clock = script, clock
        self.pressure = pressure_of(script, clock, queue_size=20)

    def room_after(self, length: int, *, seconds: float) -> float:
        """Return the room for stale refreshes after ``seconds`` with a queue of ``length``."""
        self._script.length = length
        for _ in range(round(seconds / LENGTH_CACHED_SECONDS)):
            self._clock.now += LENGTH_CACHED_SECONDS
            self.pressure.refresh_queue_length()
        return self.pressure.room_for_stale()


@pytest.fixture
def polls(script: ScriptedBroker, clock: Clock) -> Polls:
    return Polls(script, clock)


def test_stale_refreshes_find_no_room_in_a_queue_that_has_been_long_for_ten_seconds(polls: Polls) -> None:
    assert polls.room_after(21, seconds=10) == math.inf
    assert polls.room_after(21, seconds=0.25) == 0
    assert polls.room_after(15, seconds=0.25) == 5


def test_a_burst_is_no_overload(polls: Polls, clock: Clock) -> None:
    assert polls.room_after(5_000, seconds=9) == math.inf
    assert polls.room_after(20, seconds=0.25) == math.inf
    assert polls.room_after(5_000, seconds=9) == math.inf
    clock.now += 3_600  # no poll meanwhile
    assert polls.room_after(5_000, seconds=10) == math.inf


def test_room_for_stale_refreshes_grows_as_workers_take_them_and_shrinks_with_the_queue(polls: Polls) -> None:
    polls.room_after(1_000, seconds=11)
    assert polls.room_after(9, seconds=0.25) == 40 - 9
    assert polls.room_after(0, seconds=0.5) == 160
    assert polls.room_after(21, seconds=0.25) == 128 - 21
    assert polls.room_after(100, seconds=5) == 0


def test_in_an_overload_a_load_has_precedence_more_rarely_the_longer_it_takes(polls: Polls) -> None:
    pressure = polls.pressure
    assert not polls.pressure.is_overloaded
    polls.room_after(1_000, seconds=11)
    assert pressure.is_overloaded
    assert pressure.has_precedence(0.0, draw=0.99)  # not known
    for damaged in (float("nan"), float("inf"), -1.0):
        assert pressure.has_precedence(damaged, draw=0.99)
    assert pressure.has_precedence(0.1, draw=0.99)  # the first one is usual
    assert not pressure.has_precedence(10.0, draw=0.02)
    assert pressure.has_precedence(10.0, draw=0.01)
    assert pressure.has_precedence(0.001, draw=0.99)
    for _ in range(1_000):
        pressure.has_precedence(10.0, draw=0.5)
    assert pressure.has_precedence(10.0, draw=0.99)  # usual by now


def test_an_overload_ends_when_workers_empty_the_queue_repeatedly(polls: Polls) -> None:
    polls.room_after(1_000, seconds=11)
    assert polls.room_after(0, seconds=1.75) == 20 * 2**7
    assert polls.room_after(0, seconds=0.25) == math.inf
    assert polls.room_after(1_000, seconds=9) == math.inf
