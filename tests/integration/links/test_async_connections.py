"""The async reader's connection, one per event loop: sharing, cancellation, closing, loops."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest
import redis
from redis.exceptions import ConnectionError, RedisError

from api_client.transport import multiplexed
from api_client.transport.connection_maker import name_reader
from api_client.transport.multiplexed import Closed
from api_client.transport.wire import pack
from tests.integration.links.conftest import UVLOOP_TOO
from tests.support.fault_proxy import FaultProxy
from tests.support.internals import by_loop, due_on
from tests.support.multiplexed import COUNT, current, ended, executed, gets, opened, patient, until

pytestmark = pytest.mark.usefixtures("run")


async def test_reads_of_one_key_in_one_tick_are_one_command(url: str, control: redis.Redis) -> None:
    async with opened(url) as connections:
        control.config_resetstat()
        assert await asyncio.gather(*(connections.get("key") for _ in range(COUNT))) == [b"value"] * COUNT
        assert gets(control) == 1


@UVLOOP_TOO
async def test_reads_of_many_keys_in_one_tick_are_one_write(url: str, control: redis.Redis, proxy: FaultProxy) -> None:
    control.mset({f"key{number}": number for number in range(COUNT)})
    async with opened(url) as connections:
        control.config_resetstat()
        before = proxy.requests
        replies = await asyncio.gather(*(connections.get(f"key{number}") for number in range(COUNT)))
        assert replies == [str(number).encode() for number in range(COUNT)]
        assert proxy.requests - before == 1
        assert gets(control) == COUNT


async def test_a_read_already_sent_is_not_shared_with_a_later_caller(
    url: str, control: redis.Redis, proxy: FaultProxy
) -> None:
    async with opened(url) as connections:
        control.config_resetstat()
        proxy.holds_replies()
        early = asyncio.ensure_future(connections.get("key"))
        await executed(control, 1)
        control.set("key", "newer")  # a later caller has to see the change
        late = asyncio.ensure_future(connections.get("key"))
        await executed(control, 2)
        proxy.passes()
        assert (await early, await late) == (b"value", b"newer")


async def test_closing_fails_pending_reads_without_a_retry(url: str, control: redis.Redis, proxy: FaultProxy) -> None:
    async with opened(url) as connections:
        proxy.holds_replies()
        tasks = [asyncio.ensure_future(connections.get(f"key{number}")) for number in range(3)]
        await until(lambda: due_on(current(connections)) == 3, "they are on their way")
        connections.close()
        results = await ended(tasks)
        assert [type(result) for result in results] == [Closed] * 3
        assert not isinstance(results[0], ConnectionError), "that would be tried again"
        assert not by_loop(connections)


@UVLOOP_TOO
async def test_closing_while_connecting_leaves_no_connection_open(
    url: str, control: redis.Redis, proxy: FaultProxy
) -> None:
    connections = patient(url)
    proxy.holds_replies()
    task = asyncio.ensure_future(connections.get("key"))
    await until(lambda: proxy.open_connections, "it connects")
    connections.close()
    proxy.passes()
    with pytest.raises(RedisError):
        await task
    assert not by_loop(connections)
    await until(lambda: not proxy.open_connections, "nothing is left open")


async def test_a_node_that_is_left_while_its_connection_is_named_is_connected_anew(
    url: str, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections, named = patient(url), 0

    async def leave_once_named(connection: object) -> None:
        nonlocal named
        await name_reader(connection)
        named += 1
        if named == 1:
            connections.invalidate_connections()

    monkeypatch.setattr(multiplexed, "name_reader", leave_once_named)
    with closing(connections):
        assert await connections.execute(pack("PING")) == b"PONG"
        assert proxy.accepted == 2
        assert named == 2
    await asyncio.sleep(0)  # let the transport close
