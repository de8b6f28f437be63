"""The async reader's connection, one per event loop, while the server or the loop fails."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import pytest
import redis
from redis.exceptions import ConnectionError, TimeoutError

from api_client.transport.multiplexed import RECHECK_SECONDS
from tests.integration.links.conftest import UVLOOP_TOO
from tests.support.fault_proxy import FaultProxy
from tests.support.internals import due_on, timer_of, unsent_on
from tests.support.multiplexed import COUNT, SHORT_SECONDS, OneByOne, current, ended, opened, until
from tests.support.timing import Measured
from tests.support.waiting import MAX_WAIT_SECONDS, aeventually

pytestmark = pytest.mark.usefixtures("run")

ATTEMPTS = 5


async def served(connections: OneByOne) -> object:
    """Read until a reply comes; on a busy machine that takes longer than a short timeout."""

    async def reply() -> object:
        with suppress(TimeoutError, ConnectionError):
            return await connections.get("key")
        return None

    return await aeventually(reply, "a reply in time")


@pytest.mark.alone
async def test_pending_reads_on_a_silent_server_time_out_and_the_next_read_reconnects(
    url: str, control: redis.Redis, proxy: FaultProxy
) -> None:
    async with opened(url, SHORT_SECONDS) as connections:
        proxy.hangs()
        with Measured() as took:
            results = await ended([connections.get(f"key{number}") for number in range(COUNT)])
        assert {type(result) for result in results} == {TimeoutError}
        assert took.seconds > SHORT_SECONDS * 0.9
        took.at_most(SHORT_SECONDS + RECHECK_SECONDS)
        assert connections.current() is None
        proxy.passes()
        accepted = proxy.accepted
        assert await served(connections) == b"value"
        assert proxy.accepted > accepted


async def test_a_request_sent_late_in_a_timeout_check_has_its_whole_timeout(
    url: str, control: redis.Redis, proxy: FaultProxy
) -> None:
    seconds = MAX_WAIT_SECONDS / 2
    ahead_seconds = 0.0
    loop = asyncio.get_running_loop()
    real_time = loop.time
    loop.time = lambda: real_time() + ahead_seconds  # type: ignore[method-assign]
    async with opened(url, seconds) as connections:
        connection = current(connections)
        timer = timer_of(connection)  # the timeout check has begun
        ahead_seconds = seconds * 0.8
        proxy.holds_replies()
        reading = asyncio.ensure_future(connections.get("key"))
        await until(lambda: due_on(connection) and not unsent_on(connection), "it is on its way")
        ahead_seconds = seconds * 1.1
        await until(lambda: timer_of(connection) is not timer, "that check ends")
        ahead_seconds = seconds * 1.2  # a second check, after one that took it for overdue, would end by now
        await asyncio.sleep(0)
        proxy.passes()
        assert await reading == b"value"


def busy(seconds: float) -> None:
    """Hold the event loop, as a callback that computes does."""
    until_seconds = time.monotonic() + seconds
    while time.monotonic() < until_seconds:
        pass


@pytest.mark.parametrize("when", ["before the write", "after the write", "both"])
async def test_a_busy_event_loop_is_not_taken_for_a_silent_server(url: str, control: redis.Redis, when: str) -> None:
    for _ in range(ATTEMPTS):
        async with opened(url, SHORT_SECONDS) as connections:
            connection = current(connections)
            reading = connection.get("key")
            if when != "after the write":
                busy(2 * SHORT_SECONDS)
            if when != "before the write":
                await until(lambda: not unsent_on(connection), "it is written")  # noqa: B023
                busy(2 * SHORT_SECONDS)
            with suppress(TimeoutError):  # the server, too, was silent for that long: the machine is busy
                assert await reading == b"value"
                assert connections.current() is connection
                return
    pytest.fail("each time the busy loop was taken for a silent server")


@UVLOOP_TOO
@pytest.mark.parametrize("orderly", [True, False])
async def test_a_lost_connection_fails_its_pending_reads_and_the_next_read_reconnects(
    url: str, control: redis.Redis, proxy: FaultProxy, orderly: bool
) -> None:
    async with opened(url) as connections:
        connection = current(connections)
        proxy.holds_replies()
        tasks = [asyncio.ensure_future(connections.get(f"key{number}")) for number in range(3)]
        await until(lambda: due_on(connection) == 3, "they are on their way")
        proxy.cuts(orderly=orderly)
        proxy.passes()
        assert [type(result) for result in await ended(tasks)] == [ConnectionError] * 3
        assert await connections.get("key") == b"value"
