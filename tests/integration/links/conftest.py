"""Connections to a real Redis, behind a proxy that fails on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import pytest
import redis
import uvloop

from api_client.transport.connection_maker import connection_maker
from api_client.transport.pool import Connections
from api_client.transport.wire import pack_get
from refresher.embedded import RedisServer
from tests.support.fault_proxy import FaultProxy
from tests.support.waiting import MAX_WAIT_SECONDS

Connect: TypeAlias = Callable[..., Connections]


@pytest.fixture
def control(control: redis.Redis) -> redis.Redis:
    control.set("key", "value")
    return control


@pytest.fixture
def proxy(clean_redis: RedisServer) -> Iterator[FaultProxy]:
    with FaultProxy.before(clean_redis.url(0)) as made:
        yield made


@pytest.fixture
def url(clean_redis: RedisServer, proxy: FaultProxy) -> str:
    """Redis, through the proxy."""
    return proxy.url(clean_redis.url(0))


@pytest.fixture
def connect(url: str) -> Iterator[Connect]:
    """Make a pool; by default through the proxy, and with long timeouts."""
    made: list[Connections] = []

    def make(
        url: str = url,
        *,
        timeout_seconds: float = MAX_WAIT_SECONDS,
        reply_seconds: float = MAX_WAIT_SECONDS,
        max_connections: int = 64,
    ) -> Connections:
        maker = connection_maker(url, timeout_seconds=timeout_seconds)
        made.append(
            Connections(
                maker, timeout_seconds=timeout_seconds, reply_seconds=reply_seconds, max_connections=max_connections
            )
        )
        return made[-1]

    yield make
    for connections in made:
        connections.drop_idle()


@pytest.fixture
def connections(connect: Connect, control: redis.Redis) -> Connections:
    """A pool with one connection, which is open."""
    made = connect()
    assert made.execute(pack_get("key")) == b"value"
    return made


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as made:
        yield made


UVLOOP_TOO = pytest.mark.parametrize("run", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"], indirect=True)
"""Marks a test of what asyncio and uvloop do differently: how they write, connect, close and lose a connection."""


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Run a test on an event loop of its own, in asyncio's debug mode."""
    new_loop = getattr(request, "param", None)

    async def bounded(coroutine: Coroutine[Any, Any, None]) -> None:
        async with asyncio.timeout(2 * MAX_WAIT_SECONDS):  # what it waits for ends first, by name
            await coroutine

    def on_new_loop(coroutine: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=new_loop, debug=True) as runner:
            runner.run(bounded(coroutine))

    return on_new_loop
