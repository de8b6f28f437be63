"""Connections that a firewall has dropped while they were idle, and values that take long on their way."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from api_client import AsyncCacheClient, CacheError, CacheUnavailable, Entry, ReaderSettings
from api_client.protocol.keys import make_key
from api_client.transport import multiplexed as aio_connections
from api_client.transport import pool as connection
from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer
from tests.support.any_reader import KINDS, AnyReader
from tests.support.event_recorder import EventRecorder
from tests.support.fake_worker import WorkedKey
from tests.support.fault_proxy import FaultProxy
from tests.support.timing import LATE_FACTOR, Measured
from tests.support.waiting import MAX_WAIT_SECONDS, aeventually, eventually, eventually_without

NAMESPACE = "test"
TIMEOUT_SECONDS = 3.0
ATTEMPTS = 5
SHORT_SECONDS = 0.3
LARGE = os.urandom(400_000).hex()  # nothing to compress
LARGE_SECONDS = 2.0
"""How long the transfer of the large value takes: many times the timeout."""

Make = Callable[..., AnyReader]


@pytest.fixture
def make(request: pytest.FixtureRequest, url: str, clean_redis: RedisServer) -> Iterator[Make]:
    readers: list[AnyReader] = []

    def make_reader(kind: str, **settings: Any) -> AnyReader:
        given = {"redis_timeout_seconds": TIMEOUT_SECONDS, **settings}
        settings_ = ReaderSettings(redis_url=url, broker_url=clean_redis.url(1), namespace=NAMESPACE, **given)
        readers.append(KINDS[kind](settings_, EventRecorder()))
        return readers[-1]

    yield make_reader
    for reader in readers:
        reader.close()


def in_time(call: Callable[[], object]) -> object:
    """Return what a call returns, however short the timeout."""
    return eventually_without((CacheUnavailable,), call, "a value in time")


def plant(control: redis.Redis, query: str, value: object) -> WorkedKey:
    key = WorkedKey(control, LeaseStore(control), make_key(NAMESPACE, query, {}, 1))
    key.store_value(value)
    return key


@pytest.fixture
def idle_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each connection count as idle for long at once."""
    monkeypatch.setattr(connection, "IDLE_SECONDS", -1.0)
    monkeypatch.setattr(aio_connections, "IDLE_SECONDS", -1.0)


def value_of(came: Entry[object] | CacheError) -> object:
    if isinstance(came, CacheError):
        raise came
    return came.value


CALLS: dict[str, Callable[[AnyReader], object]] = {
    "get": lambda reader: reader.get("q", {}),
    "get_many": lambda reader: value_of(*reader.get_many([("q", {})])),
    "invalidate": lambda reader: "value" if reader.invalidate("q", {}).generation else "none",
}


@pytest.mark.failure("R10")
@pytest.mark.usefixtures("idle_for_long")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("call", sorted(CALLS))
def test_a_connection_dropped_while_idle_is_replaced_and_no_call_fails(
    make: Make, control: redis.Redis, proxy: FaultProxy, kind: str, call: str
) -> None:
    plant(control, "q", "value")
    reader = make(kind)
    for _ in range(ATTEMPTS):
        assert in_time(lambda: reader.get("q", {})) == "value"
        accepted = proxy.accepted
        proxy.goes_half_open()
        try:
            with Measured() as took:
                assert CALLS[call](reader) == "value"
            assert proxy.accepted > accepted, "it was replaced before it was used"
            return
        except CacheUnavailable:
            if LATE_FACTOR * took.late_seconds < TIMEOUT_SECONDS / 2:
                raise
    pytest.fail("each time the machine was so late that the new connection may have timed out, too")


@pytest.mark.failure("R11")
@pytest.mark.parametrize("kind", KINDS)
def test_a_value_that_takes_longer_than_the_timeout_is_read(
    make: Make, control: redis.Redis, proxy: FaultProxy, kind: str
) -> None:
    plant(control, "large", LARGE)
    reader = make(kind, redis_timeout_seconds=SHORT_SECONDS, redis_reply_timeout_seconds=MAX_WAIT_SECONDS)
    eventually(lambda: reader.get("large", {}, default=None, timeout=0), "a hit")
    proxy.slows(0.0, len(LARGE) / LARGE_SECONDS)
    began = time.monotonic()
    assert in_time(lambda: reader.get("large", {})) == LARGE
    assert in_time(lambda: value_of(*reader.get_many([("large", {})]))) == LARGE
    assert time.monotonic() - began > 2 * SHORT_SECONDS, "the proxy was not slow"


@pytest.mark.parametrize("kind", KINDS)
def test_values_beyond_the_reply_timeout_fail_alone_and_open_no_breaker(
    make: Make, control: redis.Redis, proxy: FaultProxy, kind: str
) -> None:
    plant(control, "large", LARGE)
    plant(control, "small", "value")
    reader = make(kind, redis_timeout_seconds=SHORT_SECONDS, redis_reply_timeout_seconds=SHORT_SECONDS)
    eventually(lambda: reader.get("small", {}, default=None, timeout=0), "a hit")
    proxy.slows(0.0, len(LARGE) / LARGE_SECONDS)

    def outcomes() -> list[str]:
        seen: list[str] = []
        for query in ("large", "small") * 7:
            try:
                seen.append(reader.get(query, {}))
            except CacheUnavailable as error:
                seen.append("too slow" if "took too long" in str(error) else str(error))
        return seen

    # On a busy machine pauses may be longer than the timeout, which do open it.
    eventually(lambda: outcomes() == ["too slow", "value"] * 7, "each fails alone, seven times in a row")


async def test_small_values_behind_a_large_one_on_a_shared_connection_do_not_time_out(
    url: str, clean_redis: RedisServer, control: redis.Redis, proxy: FaultProxy
) -> None:
    plant(control, "large", LARGE)
    plant(control, "small", "value")
    settings = ReaderSettings(
        redis_url=url, broker_url=clean_redis.url(1), namespace=NAMESPACE, redis_timeout_seconds=SHORT_SECONDS,
        redis_reply_timeout_seconds=MAX_WAIT_SECONDS,
    )  # fmt: skip
    client = AsyncCacheClient(settings)
    await aeventually(lambda: client.get("small", timeout=0, default=None), "a hit")
    proxy.slows(0.0, len(LARGE) / LARGE_SECONDS)

    async def all_came() -> bool:
        accepted, began = proxy.accepted, time.monotonic()
        values = await asyncio.gather(
            client.get("large"), *(client.get("small") for _ in range(20)), return_exceptions=True
        )
        if values != [LARGE] + ["value"] * 20 or proxy.accepted != accepted:
            return False
        assert time.monotonic() - began > 2 * SHORT_SECONDS, "the proxy was not slow"
        return True

    await aeventually(all_came, "all values on one connection")  # a busy machine exceeds the timeout
    await client.close()
