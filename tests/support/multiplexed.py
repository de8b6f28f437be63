"""The async reader's connections, with helpers of tests to open, inspect and await them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import redis
from redis.exceptions import TimeoutError

from api_client.transport.connection_maker import async_connection_maker
from api_client.transport.multiplexed import AsyncConnections, Multiplexed
from api_client.transport.wire import pack
from tests.support.waiting import MAX_WAIT_SECONDS, aeventually

SHORT_SECONDS = 0.3
COUNT = 64


class OneByOne(AsyncConnections):
    """Connections that take one command at a time."""

    async def get(self, key: str) -> Any:
        return await (await self.opened()).get(key)

    async def execute(self, request: bytes) -> Any:
        return await (await self.opened()).execute(request)


def patient(
    url: str, timeout_seconds: float = MAX_WAIT_SECONDS, *, reply_seconds: float = MAX_WAIT_SECONDS
) -> OneByOne:
    maker = async_connection_maker(url, timeout_seconds=timeout_seconds)
    return OneByOne(maker, timeout_seconds=timeout_seconds, reply_seconds=reply_seconds)


@asynccontextmanager
async def opened(
    url: str, timeout_seconds: float = MAX_WAIT_SECONDS, *, reply_seconds: float = MAX_WAIT_SECONDS
) -> AsyncIterator[OneByOne]:
    """Open this loop's connection."""
    connections = patient(url, timeout_seconds, reply_seconds=reply_seconds)

    async def is_open() -> bool:
        with suppress(TimeoutError):  # on a busy machine that takes longer than a short timeout
            assert await connections.execute(pack("PING")) == b"PONG"
        return connections.current() is not None

    await aeventually(is_open, "a connection")
    try:
        yield connections
    finally:
        connections.close()
        await asyncio.sleep(0)  # let the transport close


def current(connections: AsyncConnections) -> Multiplexed:
    connection = connections.current()
    assert connection is not None
    return connection


async def until(condition: Callable[[], object], what: str) -> None:
    """Check the condition again in each iteration of the event loop."""
    deadline = time.monotonic() + MAX_WAIT_SECONDS
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
