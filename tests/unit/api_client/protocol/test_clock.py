"""Redis' clock, as a process knows it: an offset to its own monotonic clock, synced when it is due or in doubt."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from freezegun import freeze_time

from api_client.protocol.clock import RedisClock, monotonic_seconds
from api_client.protocol.xfetch import should_refresh
from tests.support.timing import Time

NOON = datetime(2026, 11, 21, 12)


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
