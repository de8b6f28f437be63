"""The breaker: it opens after failures in a row, and one outage is one outage, however many calls meet it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from redis.exceptions import ConnectionError, ResponseError, TimeoutError

from api_client.errors import CacheUnavailable
from api_client.transport.aio_link import AsyncCacheNode
from api_client.transport.breaker import Breaker
from api_client.transport.connection_maker import READER
from api_client.transport.health import NodeHealth
from api_client.transport.link import CacheNode
from api_client.transport.pool import AllInUse
from api_client.transport.sentinel import MasterAddress
from tests.support.timing import Time


@pytest.mark.parametrize("node_class", [CacheNode, AsyncCacheNode])
def test_a_node_outside_of_sentinels_is_not_kept_by_the_address_of_a_master(node_class: Any) -> None:
    class Kept(MasterAddress):
        def on_change(self, leave: Callable[[], object]) -> None:
            raise AssertionError(leave)

    role = {"role": READER} if node_class is CacheNode else {}
    node_class("redis://127.0.0.1:1", 1.0, 1.0, NodeHealth(), master=Kept(), **role)


def test_a_clock_that_was_learnt_closes_the_breaker() -> None:
    health = NodeHealth()
    fail(health.breaker, 5)
    health.set_clock((1, 0), asked_at=0.0)
    assert not health.breaker.is_open


@pytest.fixture
def breaker(time: Time) -> Breaker:
    return Breaker(threshold=5, first_pause_seconds=0.25, max_pause_seconds=5.0, monotonic=time)


def fail(breaker: Breaker, times: int) -> None:
    for _ in range(times):
        breaker.failed()


def pause_seconds(breaker: Breaker, time: Time) -> float:
    """Return how long no call is allowed; the probe that ends the pause is taken."""
    began = time.now
    while not breaker.allows():
        time.now += 0.01
    return time.now - began


def test_a_breaker_opens_at_threshold_failures_in_a_row(breaker: Breaker) -> None:
    fail(breaker, 4)
    assert (breaker.allows(), breaker.is_open) == (True, False)
    breaker.succeeded()
    fail(breaker, 4)
    assert breaker.allows()
    fail(breaker, 1)
    assert (breaker.allows(), breaker.is_open) == (False, True)


def test_a_late_failure_of_a_call_begun_before_the_breaker_opened_does_not_delay_the_probe(
    breaker: Breaker, time: Time
) -> None:
    fail(breaker, 5)
    time.now += 0.2
    fail(breaker, 59)
    assert pause_seconds(breaker, time) == pytest.approx(0.05, abs=0.02)


def test_only_a_failed_probe_doubles_the_pause_and_only_once(breaker: Breaker, time: Time) -> None:
    fail(breaker, 5)
    for expected in (0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0):
        assert pause_seconds(breaker, time) == pytest.approx(expected, abs=0.02)
        fail(breaker, 64)


def test_a_probe_that_never_reports_is_followed_by_another_of_the_same_pause(breaker: Breaker, time: Time) -> None:
    fail(breaker, 5)
    for _ in range(4):
        assert pause_seconds(breaker, time) == pytest.approx(0.25, abs=0.02)


def test_a_success_resets_the_breaker_s_count_and_pause(breaker: Breaker, time: Time) -> None:
    fail(breaker, 5)
    pause_seconds(breaker, time)
    breaker.failed()
    pause_seconds(breaker, time)
    breaker.succeeded()
    assert not breaker.is_open
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
        (AllInUse("all 64 connections are in use, and none became free in time"), False),
    ],
)
def test_only_connection_errors_and_timeouts_open_the_breaker(error: Exception, opens: bool) -> None:
    health = NodeHealth()
    errors = [health.failure(error, "q") for _ in range(5)]
    assert health.breaker.is_open is opens
    assert {(type(one), one.query, one.__cause__) for one in errors} == {(CacheUnavailable, "q", error)}


def test_the_error_of_a_call_refused_by_the_open_breaker_names_the_setting_and_the_last_failure(
    breaker: Breaker,
) -> None:
    health = NodeHealth()
    health.breaker = breaker
    for _ in range(5):
        health.failure(ConnectionError("refused"), "q")
    with pytest.raises(CacheUnavailable, match=r"\(CACHE_REDIS_URL\) .* not tried again yet: .*refused") as error:
        health.check("q")
    assert error.value.query == "q"


def test_the_timeout_of_an_exhausted_pool_is_reported_as_such() -> None:
    message = str(NodeHealth().failure(AllInUse("all 64 connections are in use, and none became free in time"), "q"))
    assert "all 64 connections are in use, and none became free in time" in message


def test_a_wrongtype_reply_counts_as_a_success_for_the_breaker() -> None:
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
    # The probe has not reported yet: another one after the same pause.
    assert pause_seconds(breaker, time) == pytest.approx(0.25, abs=0.02)
    breaker.failed()
    assert pause_seconds(breaker, time) == pytest.approx(0.5, abs=0.02)


async def test_a_late_failure_of_another_task_is_not_taken_for_the_probe_s(breaker: Breaker, time: Time) -> None:
    async def late(probing: asyncio.Event) -> None:
        assert breaker.allows()
        await probing.wait()
        breaker.failed()

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
