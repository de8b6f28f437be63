"""The async reader only: cancelled tasks, and event loops that start, end and run side by side."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
import redis
import uvloop
from redis.client import PubSub

from api_client import AsyncCacheClient, ReaderSettings
from refresher.embedded import RedisServer
from tests.integration.reader.conftest import NewKey, connections
from tests.support.any_reader import callers_waiting
from tests.support.event_recorder import EventRecorder
from tests.support.internals import record_claims
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

T = TypeVar("T")
UVLOOP_TOO = pytest.mark.parametrize("run", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"], indirect=True)
TASKS = 5


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, T]], T]:
    """Run on an event loop of its own, which ends with it."""

    def on_a_loop(main: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=getattr(request, "param", None)) as runner:
            return runner.run(main)

    return on_a_loop


@pytest.fixture
def client(settings: dict[str, Any], events: EventRecorder) -> AsyncCacheClient:
    return AsyncCacheClient(ReaderSettings(**settings), events=events)


async def waited_for(client: AsyncCacheClient, callers: int) -> None:
    """Return once ``callers`` share the one wait."""
    await asyncio.to_thread(eventually, lambda: callers_waiting(client) == [callers], f"{callers} share a wait")


@asynccontextmanager
async def waiting(client: AsyncCacheClient, callers: int) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Tasks that share one wait."""
    tasks = [asyncio.create_task(client.get("q")) for _ in range(callers)]
    await waited_for(client, callers)
    yield tasks
    await client.close()


def test_when_all_waiters_are_cancelled_no_task_is_left(client: AsyncCacheClient, new_key: NewKey, run: Any) -> None:
    key = new_key()

    async def main() -> set[Any]:
        async with waiting(client, TASKS) as tasks:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            loop = asyncio.get_running_loop()
            await asyncio.to_thread(eventually, lambda: len(asyncio.all_tasks(loop)) == 1, "no task is left but this")
            # And a later caller waits anew.
            again = asyncio.create_task(client.get("q"))
            await asyncio.to_thread(key.load, "v")
            return {await again}

    assert run(main()) == {"v"}


@UVLOOP_TOO
def test_one_client_serves_successive_event_loops_and_leaves_no_connection_open(
    client: AsyncCacheClient, new_key: NewKey, control: redis.Redis, run: Any
) -> None:
    new_key().store_value("v")
    before = connections(control)
    for _ in range(3):
        assert run(client.get("q")) == "v"
        gc.collect()  # a transport that was left open would say so now
        eventually(lambda: connections(control) <= before, "its connection is closed")
    client.close_threads()


def test_one_client_serves_event_loops_side_by_side(
    client: AsyncCacheClient, new_key: NewKey, run: Any, pool: ThreadPoolExecutor, events: EventRecorder
) -> None:
    key = new_key()
    loops = [pool.submit(run, client.get("q")) for _ in range(4)]
    key.load("v")
    assert [loop.result(MAX_WAIT_SECONDS) for loop in loops] == ["v"] * 4
    client.close_threads()
    assert events["triggered"] == [["miss"]]


async def test_an_event_loop_does_not_wait_for_the_subscription_of_a_task(
    client: AsyncCacheClient, new_key: NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, is_over = threading.Event(), threading.Event(), threading.Event()

    def slow(*_: object) -> None:
        """Take as long as a new connection to a node that does not answer."""
        begun.set()
        go_on.wait(MAX_WAIT_SECONDS / 4)
        is_over.set()

    first = asyncio.ensure_future(client.get("q", {"n": 1}))
    await asyncio.to_thread(eventually, new_key("q", {"n": 1}).has_subscriber, "it is subscribed")
    monkeypatch.setattr(PubSub, "subscribe", slow)
    second = asyncio.ensure_future(client.get("q", {"n": 2}))
    await asyncio.to_thread(begun.wait, MAX_WAIT_SECONDS)
    assert not is_over.is_set(), "the loop went on meanwhile"
    go_on.set()
    await asyncio.to_thread(new_key("q", {"n": 2}).load, "two")
    assert await second == "two"
    await asyncio.to_thread(new_key("q", {"n": 1}).load, "one")
    assert await first == "one"
    await client.close()


# Of asyncio and redis-py: sockets that a loop leaves open which is closed like this.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_loops_closed_in_the_middle_of_a_wait_are_left_behind(
    client: AsyncCacheClient, new_key: NewKey, clean_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, claimed = new_key(), record_claims(monkeypatch)

    async def begun() -> asyncio.Task[Any]:
        before = len(claimed)
        task = asyncio.create_task(client.get("q"))
        await asyncio.to_thread(eventually, lambda: len(claimed) > before, "this loop's own wait has claimed")
        return task

    def closed_while_waiting() -> weakref.ref[asyncio.AbstractEventLoop]:
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda *_: None)  # asyncio itself reports the tasks that are left
        assert not loop.run_until_complete(begun()).done()
        loop.close()
        return weakref.ref(loop)

    async def main() -> Any:
        task = await begun()
        await asyncio.to_thread(key.load, "v")
        return await task

    closed = [closed_while_waiting() for _ in range(3)]
    assert asyncio.run(main()) == "v"

    def are_gone() -> bool:
        gc.collect()  # does nothing while another thread collects
        return not any(loop() for loop in closed)

    eventually(are_gone, "nothing holds the closed loops")
    with redis.Redis.from_url(clean_redis.url()) as control:
        eventually(lambda: not control.pubsub_channels(), "nothing is subscribed to for them")
