"""Private parts of redis-py that the pooled raw connections use. A new release of it may break any of these."""

from __future__ import annotations

import asyncio
import inspect
import socket
import struct

import pytest
import uvloop

from api_client.transport.connection_maker import async_connection_maker, connection_maker
from api_client.transport.pool import Connection
from refresher.embedded import RedisServer

TIMEOUT_SECONDS = 12.5


def test_a_sync_connection_keeps_its_socket_in_sock(clean_redis: RedisServer) -> None:
    made = connection_maker(clean_redis.url(0), timeout_seconds=TIMEOUT_SECONDS)()
    assert made._sock is None, "redis-py connects before connect() is called: connection.Connection calls it"
    made.connect()
    assert isinstance(made._sock, socket.socket), "redis-py keeps the socket elsewhere: see connection.Connection"
    made.disconnect()
    assert made._sock is None, "disconnect() does not close the socket any more: see connection.Connection.close"


def test_the_kernel_bounds_the_waits_of_a_sync_connection(clean_redis: RedisServer) -> None:
    maker = connection_maker(clean_redis.url(0), timeout_seconds=TIMEOUT_SECONDS)
    connection = Connection(maker, timeout_seconds=TIMEOUT_SECONDS, reply_seconds=TIMEOUT_SECONDS)
    connection.connect()
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        set_to = struct.unpack("@ll", connection._socket.getsockopt(socket.SOL_SOCKET, option, 16))
        assert set_to == (12, 500_000)
    assert connection._socket.gettimeout() is None, "with a timeout of Python's each call costs a poll()"
    keepalive = [
        connection._socket.getsockopt(level, option)
        for level, option in (
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL),
            (socket.IPPROTO_TCP, socket.TCP_KEEPCNT),
        )
    ]
    assert keepalive == [1, 30, 10, 3], (
        "a firewall forgets an idle connection sooner than the system's keepalive begins"
    )
    connection.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_an_async_connection_keeps_its_transport_in_writer(clean_redis: RedisServer, new_loop: object) -> None:
    async def look() -> None:
        made = async_connection_maker(clean_redis.url(0), timeout_seconds=TIMEOUT_SECONDS)()
        await made.connect()
        transport = made._writer.transport
        assert isinstance(transport.get_protocol(), asyncio.StreamReaderProtocol), "see aio.connections.Multiplexed"
        assert not inspect.iscoroutinefunction(made._close), "_close() waits now: see aio.connections.Multiplexed"
        made._close()
        assert transport.is_closing(), "_close() leaves the transport open: see aio.connections.Multiplexed"
        assert made._writer is None
        transport.abort()
        await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=new_loop) as runner:  # type: ignore[arg-type]
        runner.run(look())
