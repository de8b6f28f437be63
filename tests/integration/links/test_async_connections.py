"""The async reader's one connection an event loop: sharing, faults, cancellation; on asyncio and uvloop."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from typing import Any, TypeAlias

import psutil
import pytest
import redis
import uvloop
from redis.exceptions import ConnectionError, RedisError, ResponseError, TimeoutError

from api_client.aio.connections import SECOND_LOOK_SECONDS, AsyncConnections, Closed, Multiplexed
from api_client.redis_edge import async_connection_maker
from api_client.wire import pack
from tests.integration.links.conftest import PATIENCE_SECONDS
from tests.support.fault_proxy import FaultProxy

Run: TypeAlias = Callable[[Coroutine[Any, Any, None]], None]

SHORT_SECONDS = 0.3
COUNT = 64


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine on an event loop of its own, in asyncio's debug mode."""

    async def bounded(coroutine: Coroutine[Any, Any, None]) -> None:
        async with asyncio.timeout(2 * PATIENCE_SECONDS):
            await coroutine

    def on_new_loop(coroutine: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param, debug=True) as runner:
            runner.run(bounded(coroutine))

    return on_new_loop


def patient(url: str, timeout_seconds: float = PATIENCE_SECONDS) -> AsyncConnections:
    maker = async_connection_maker(url, timeout_seconds=timeout_seconds)
    return AsyncConnections(maker, timeout_seconds=timeout_seconds)


@asynccontextmanager
async def opened(url: str, timeout_seconds: float = PATIENCE_SECONDS) -> AsyncIterator[AsyncConnections]:
    """Connections of which this loop's is open."""
    connections = patient(url, timeout_seconds)
    assert await connections.ask(pack("PING")) == b"PONG"
    try:
        yield connections
    finally:
        connections.close()
        await asyncio.sleep(0)  # the transport says goodbye


def current(connections: AsyncConnections) -> Multiplexed:
    connection = connections.current()
    assert connection is not None
    return connection


async def until(condition: Callable[[], object], what: str) -> None:
    """Look again, in each round of the event loop."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not in time"
        await asyncio.sleep(0)


def gets(control: redis.Redis) -> int:
    calls: int = control.info("commandstats").get("cmdstat_get", {"calls": 0})["calls"]
    return calls


async def executed(control: redis.Redis, count: int) -> None:
    await until(lambda: gets(control) >= count, f"Redis has executed {count} reads")


async def ended(futures: list[Any]) -> list[Any]:
    return await asyncio.gather(*futures, return_exceptions=True)


def test_reads_of_one_key_in_one_tick_are_one(run: Run, url: str, control: redis.Redis) -> None:
    async def read() -> None:
        async with opened(url) as connections:
            control.config_resetstat()
            assert await asyncio.gather(*(connections.get("key") for _ in range(COUNT))) == [b"value"] * COUNT
            assert gets(control) == 1

    run(read())


def test_reads_of_many_keys_in_one_tick_are_one_write(run: Run, url: str, control: redis.Redis) -> None:
    control.mset({f"key{number}": number for number in range(COUNT)})

    async def read() -> None:
        async with opened(url) as connections:
            control.config_resetstat()
            before = control.info("stats")["total_reads_processed"]
            replies = await asyncio.gather(*(connections.get(f"key{number}") for number in range(COUNT)))
            assert replies == [str(number).encode() for number in range(COUNT)]
            assert control.info("stats")["total_reads_processed"] - before == 2  # and this question
            assert gets(control) == COUNT

    run(read())


def test_a_read_that_was_sent_is_not_shared(run: Run, url: str, control: redis.Redis, proxy: FaultProxy) -> None:
    async def read() -> None:
        async with opened(url) as connections:
            control.config_resetstat()
            proxy.holds_replies()
            early = asyncio.ensure_future(connections.get("key"))
            await executed(control, 1)
            control.set("key", "newer")  # this caller knows of the change now
            late = asyncio.ensure_future(connections.get("key"))
            await executed(control, 2)
            proxy.passes()
            assert (await early, await late) == (b"value", b"newer")

    run(read())


def test_cancelling_some_who_share_a_read_leaves_the_others_unharmed(
    run: Run, url: str, control: redis.Redis, proxy: FaultProxy
) -> None:
    async def read() -> None:
        async with opened(url) as connections:
            proxy.holds_replies()
            tasks = [asyncio.ensure_future(connections.get("key")) for _ in range(5)]
            other = asyncio.ensure_future(connections.get("none"))
            await until(lambda: len(current(connections)._due) == 2, "all are on their way")
            tasks[0].cancel()
            tasks[3].cancel()
            proxy.passes()
            results = await ended([*tasks, other])
            assert [type(result) for result in results[:4:3]] == [asyncio.CancelledError] * 2
            assert [*results[1:3], *results[4:]] == [b"value", b"value", b"value", None]
            assert await connections.get("key") == b"value"

    run(read())


def test_cancelling_who_opens_the_connection_leaves_it_to_the_others(
    run: Run, url: str, control: redis.Redis, proxy: FaultProxy
) -> None:
    async def read() -> None:
        connections = patient(url)
        proxy.hangs()
        tasks = [asyncio.ensure_future(connections.get("key")) for _ in range(3)]
        await until(lambda: proxy.accepted, "it connects")
        tasks[0].cancel()
        await asyncio.sleep(0)
        proxy.passes()
        results = await ended(tasks)
        assert (type(results[0]), results[1:]) == (asyncio.CancelledError, [b"value"] * 2)
        assert proxy.accepted == 1
        connections.close()
        await asyncio.sleep(0)

    run(read())


def test_what_is_due_on_a_silent_server_fails_in_time_and_the_next_read_connects_anew(
    run: Run, url: str, control: redis.Redis, proxy: FaultProxy
) -> None:
    async def read() -> None:
        async with opened(url, SHORT_SECONDS) as connections:
            proxy.hangs()
            began = time.monotonic()
            results = await ended([connections.get(f"key{number}") for number in range(COUNT)])
            took = time.monotonic() - began
            assert {type(result) for result in results} == {TimeoutError}
            assert SHORT_SECONDS * 0.9 < took < SHORT_SECONDS + SECOND_LOOK_SECONDS + 2
            assert connections.current() is None
            proxy.passes()
            accepted = proxy.accepted
            assert await connections.get("key") == b"value"
            assert proxy.accepted == accepted + 1

    run(read())


def test_a_request_has_its_whole_timeout_however_late_in_a_watch_it_is_sent(
    run: Run, url: str, control: redis.Redis, proxy: FaultProxy
) -> None:
    seconds = 1.0

    async def read() -> None:
        async with opened(url, seconds) as connections:
            began = time.monotonic()
            await connections.get("key")  # the watch begins
            await asyncio.sleep(seconds * 0.8)
            proxy.slows(seconds * 0.5)  # the reply comes after the end of that watch, and in time
            assert await connections.get("key") == b"value"
            assert time.monotonic() - began > seconds

    run(read())


def test_a_reply_that_trickles_is_given_up_when_the_timeout_is_over(
    run: Run, url: str, control: redis.Redis, proxy: FaultProxy
) -> None:
    control.set("large", b"x" * 8 * 1024 * 1024)

    async def read() -> None:
        async with opened(url, SHORT_SECONDS) as connections:
            proxy.slows(SHORT_SECONDS / 4)  # of each of more than a hundred pieces
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                await connections.get("large")
            assert time.monotonic() - began < SHORT_SECONDS + SECOND_LOOK_SECONDS + 2

    run(read())


def test_a_large_reply_is_whole(run: Run, url: str, control: redis.Redis) -> None:
    large = b"x" * 8 * 1024 * 1024
    control.set("large", large)

    async def read() -> None:
        async with opened(url) as connections:
            assert await asyncio.gather(*map(connections.get, ("large", "key", "large"))) == [large, b"value", large]

    run(read())


def busy(seconds: float) -> None:
    """Hold the event loop, as a callback that computes does."""
    until_seconds = time.monotonic() + seconds
    while time.monotonic() < until_seconds:
        pass


@pytest.mark.parametrize("when", ["before the write", "after the write", "both"])
def test_an_event_loop_that_was_busy_is_no_silent_server(run: Run, url: str, control: redis.Redis, when: str) -> None:
    async def read() -> None:
        async with opened(url, SHORT_SECONDS) as connections:
            connection = current(connections)
            reading = connection.get("key")
            if when != "after the write":
                busy(2 * SHORT_SECONDS)
            if when != "before the write":
                await until(lambda: not connection._unsent, "it is written")
                busy(2 * SHORT_SECONDS)
            assert await reading == b"value"
            assert connections.current() is connection

    run(read())


def test_error_replies_are_returned_and_the_connection_stays(run: Run, url: str, control: redis.Redis) -> None:
    control.hset("hash", "field", "value")

    async def read() -> None:
        async with opened(url) as connections:
            connection = current(connections)
            results = await asyncio.gather(*map(connections.get, ("hash", "key")), connections.ask(pack("NONSENSE")))
            assert [type(result) for result in results] == [ResponseError, bytes, ResponseError]
            assert connections.current() is connection

    run(read())


@pytest.mark.parametrize("orderly", [True, False])
def test_a_lost_connection_fails_what_is_due_and_is_made_anew(
    run: Run, url: str, control: redis.Redis, proxy: FaultProxy, orderly: bool
) -> None:
    async def read() -> None:
        async with opened(url) as connections:
            connection = current(connections)
            proxy.holds_replies()
            tasks = [asyncio.ensure_future(connections.get(f"key{number}")) for number in range(3)]
            await until(lambda: len(connection._due) == 3, "they are on their way")
            proxy.cuts(orderly=orderly)
            proxy.passes()
            assert [type(result) for result in await ended(tasks)] == [ConnectionError] * 3
            assert await connections.get("key") == b"value"

    run(read())


def test_who_asks_on_a_lost_connection_is_told_at_once(run: Run, url: str, control: redis.Redis) -> None:
    async def read() -> None:
        async with opened(url) as connections:
            connection = current(connections)
            unsent = connection.get("key")
            connection.connection_lost(None)
            asked = [connection.get("key"), connection.get("key"), connection.ask(pack("PING"))]
            assert [type(result) for result in await ended([unsent, *asked])] == [ConnectionError] * 4

    run(read())


def test_a_refused_connection_is_told_to_all_who_wait_for_it(
    run: Run, url: str, control: redis.Redis, proxy: FaultProxy
) -> None:
    async def read() -> None:
        connections = patient(url)
        proxy.refuses()
        results = await ended([connections.get(f"key{number}") for number in range(COUNT)])
        assert all(isinstance(result, ConnectionError) for result in results)
        proxy.passes()
        assert await connections.get("key") == b"value"
        assert not connections._opening
        connections.close()
        await asyncio.sleep(0)

    run(read())


def test_a_silent_server_holds_up_connecting_for_no_longer_than_twice_the_timeout(
    run: Run, url: str, control: redis.Redis, proxy: FaultProxy
) -> None:
    async def read() -> None:
        connections = patient(url, SHORT_SECONDS)
        proxy.hangs()
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            await connections.get("key")
        assert time.monotonic() - began < 2 * SHORT_SECONDS + 2

    run(read())


def test_closing_fails_what_is_due_for_good(run: Run, url: str, control: redis.Redis, proxy: FaultProxy) -> None:
    async def read() -> None:
        async with opened(url) as connections:
            proxy.holds_replies()
            tasks = [asyncio.ensure_future(connections.get(f"key{number}")) for number in range(3)]
            await until(lambda: len(current(connections)._due) == 3, "they are on their way")
            connections.close()
            results = await ended(tasks)
            assert [type(result) for result in results] == [Closed] * 3
            assert not isinstance(results[0], ConnectionError), "that would be tried again"
            assert not connections._by_loop

    run(read())


def test_closing_while_the_connection_is_being_made_leaves_none(
    run: Run, url: str, control: redis.Redis, proxy: FaultProxy
) -> None:
    async def read() -> None:
        connections = patient(url)
        proxy.holds_replies()
        task = asyncio.ensure_future(connections.get("key"))
        await until(lambda: proxy.open_connections, "it connects")
        connections.close()
        proxy.passes()
        with pytest.raises(RedisError):
            await task
        assert not connections._by_loop
        await until(lambda: not proxy.open_connections, "nothing is left open")

    run(read())


def test_two_event_loops_in_two_threads_have_a_connection_each(
    run: Run, url: str, control: redis.Redis, proxy: FaultProxy, pool: ThreadPoolExecutor
) -> None:
    connections, both = patient(url), threading.Barrier(2)

    async def read() -> None:
        for _ in range(50):
            assert await asyncio.gather(connections.get("key"), connections.get("none")) == [b"value", None]
        both.wait(PATIENCE_SECONDS)
        connections.close()
        await asyncio.sleep(0)

    for future in [pool.submit(run, read()) for _ in range(2)]:
        future.result()
    assert proxy.accepted == 2
    assert not connections._by_loop


# Nobody closes the connection of an event loop that is just left; the garbage collection does.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_event_loops_one_after_the_other_are_forgotten_with_their_connections(
    run: Run, url: str, control: redis.Redis
) -> None:
    connections = patient(url)

    async def read() -> None:
        assert await connections.get("key") == b"value"

    run(read())
    gc.collect()
    before = psutil.Process().num_fds()
    for _ in range(20):
        run(read())
        assert len(connections._by_loop) == 1
    gc.collect()
    assert psutil.Process().num_fds() <= before


def test_loops_that_come_and_go_meanwhile_disturb_nobody(url: str, control: redis.Redis) -> None:
    connections = patient(url)
    with closing(asyncio.new_event_loop()) as other:

        class Closing:
            def is_closed(self) -> bool:
                connections._by_loop[other] = None  # type: ignore[assignment]
                return True

        connections._by_loop[Closing()] = None  # type: ignore[index, assignment]

        async def read() -> object:
            reply: object = await connections.get("key")
            connections.close()
            await asyncio.sleep(0)
            return reply

        assert asyncio.run(read()) == b"value"
