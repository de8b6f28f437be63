"""The breaker under concurrent failures: one outage is one outage, however many calls meet it."""

from __future__ import annotations

import asyncio
import threading

import pytest
from redis.exceptions import ConnectionError, ResponseError, TimeoutError

from api_client.errors import CacheUnavailable
from api_client.transport.breaker import Breaker
from api_client.transport.health import NodeHealth
from api_client.transport.pool import AllInUse
from tests.support.clock import Time


@pytest.fixture
def breaker(time: Time) -> Breaker:
    return Breaker(threshold=5, first_pause_seconds=0.25, max_pause_seconds=5.0, monotonic=time)


def fail(breaker: Breaker, times: int) -> None:
    for _ in range(times):
        breaker.failed()


def pause_seconds(breaker: Breaker, time: Time) -> float:
    """How long nothing is let through; the probe that ends it is taken."""
    began = time.now
    while not breaker.allows():
        time.now += 0.01
    return time.now - began


def test_failures_of_one_outage_do_not_prolong_its_pause(breaker: Breaker, time: Time) -> None:
    fail(breaker, 64)
    assert pause_seconds(breaker, time) == pytest.approx(0.25, abs=0.02)


def test_a_call_that_began_before_it_opened_and_fails_late_does_not_put_the_probe_off(
    breaker: Breaker, time: Time
) -> None:
    fail(breaker, 5)
    time.now += 0.2
    fail(breaker, 59)
    assert pause_seconds(breaker, time) == pytest.approx(0.05, abs=0.02)


def test_only_a_probe_that_fails_doubles_the_pause_and_once(breaker: Breaker, time: Time) -> None:
    fail(breaker, 5)
    for expected in (0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0):
        assert pause_seconds(breaker, time) == pytest.approx(expected, abs=0.02)
        fail(breaker, 64)


def test_a_probe_that_never_reports_is_followed_by_another_of_the_same_pause(breaker: Breaker, time: Time) -> None:
    fail(breaker, 5)
    for _ in range(4):
        assert pause_seconds(breaker, time) == pytest.approx(0.25, abs=0.02)


def test_after_a_success_it_counts_from_nothing(breaker: Breaker, time: Time) -> None:
    fail(breaker, 5)
    pause_seconds(breaker, time)
    breaker.failed()
    pause_seconds(breaker, time)
    breaker.succeeded()
    fail(breaker, 4)
    assert breaker.allows()
    breaker.failed()
    assert pause_seconds(breaker, time) == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize(
    ("error", "opens"),
    [
        (TimeoutError("silent"), True),
        (ConnectionError("refused"), True),
        (OSError("no route"), True),
        (ResponseError("OOM"), False),
        (AllInUse("all 64 connections are in use, and none came free in time"), False),
    ],
)
def test_what_says_that_redis_is_gone_opens_it_and_nothing_else(error: Exception, opens: bool) -> None:
    health = NodeHealth()
    told = [health.failure(error, "q") for _ in range(5)]
    assert health.breaker.is_open is opens
    assert {(type(one), one.query, one.__cause__) for one in told} == {(CacheUnavailable, "q", error)}


def test_the_time_out_of_a_full_pool_says_so() -> None:
    told = str(NodeHealth().failure(AllInUse("all 64 connections are in use, and none came free in time"), "q"))
    assert "all 64 connections are in use, and none came free in time" in told


def test_a_key_that_is_no_string_is_an_answer_of_a_redis_that_is_well() -> None:
    health = NodeHealth()
    for _ in range(4):
        health.failure(TimeoutError("silent"), "q")
    assert health.entry_of(ResponseError("WRONGTYPE Operation against a key"), "q") == b""
    health.failure(TimeoutError("silent"), "q")
    assert not health.breaker.is_open


def test_a_late_failure_of_another_thread_is_not_taken_for_the_probe_s(breaker: Breaker, time: Time) -> None:
    fail(breaker, 5)
    assert pause_seconds(breaker, time) == pytest.approx(0.25, abs=0.02)
    late = threading.Thread(target=fail, args=(breaker, 64))
    late.start()
    late.join()
    # Nobody has reported yet: another probe after the same pause.
    assert pause_seconds(breaker, time) == pytest.approx(0.25, abs=0.02)
    breaker.failed()
    assert pause_seconds(breaker, time) == pytest.approx(0.5, abs=0.02)


def test_a_late_failure_of_another_task_is_not_taken_for_the_probe_s(breaker: Breaker, time: Time) -> None:
    async def late(probing: asyncio.Event) -> None:
        assert breaker.allows()
        await probing.wait()
        breaker.failed()

    async def outage() -> None:
        probing = asyncio.Event()
        under_way = asyncio.create_task(late(probing))
        await asyncio.sleep(0)
        fail(breaker, 5)
        assert pause_seconds(breaker, time) == pytest.approx(0.25, abs=0.02)
        probing.set()
        await under_way
        assert pause_seconds(breaker, time) == pytest.approx(0.25, abs=0.02)
        breaker.failed()
        assert pause_seconds(breaker, time) == pytest.approx(0.5, abs=0.02)

    asyncio.run(outage())
