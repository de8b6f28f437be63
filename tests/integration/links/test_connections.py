"""The sync reader's connections: faults of the server, bounds in time, sharing among threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
import redis
from redis.exceptions import ConnectionError, ResponseError

from api_client.transport.pool import Connections
from api_client.transport.wire import pack, pack_all, pack_get
from refresher.embedded import RedisServer
from tests.integration.links.conftest import Connect
from tests.support.fault_proxy import FaultProxy
from tests.support.waiting import eventually

GET = pack_get("key")
SHORT_SECONDS = 0.3
LARGE = b"x" * 8 * 1024 * 1024


def test_a_connection_closed_by_the_server_is_replaced_once_without_an_error(
    connections: Connections, proxy: FaultProxy
) -> None:
    for orderly in (True, False):
        accepted = proxy.accepted
        proxy.cuts(orderly=orderly)
        assert connections.execute(GET) == b"value"
        assert proxy.accepted == accepted + 1


def test_with_many_dead_connections_a_request_is_sent_on_one_and_then_on_a_new_one(
    connections: Connections, proxy: FaultProxy, control: redis.Redis, pool: ThreadPoolExecutor
) -> None:
    proxy.holds_replies()
    reads = [pool.submit(connections.execute, GET) for _ in range(8)]
    eventually(lambda: proxy.open_connections == 8, "eight connections")
    proxy.passes()
    assert [each.result() for each in reads] == [b"value"] * 8
    control.config_resetstat()
    proxy.cuts()
    assert connections.execute(GET) == b"value"
    assert control.info("commandstats")["cmdstat_get"]["calls"] == 1
    assert proxy.open_connections == 1


def test_a_failure_on_a_new_connection_is_raised_without_another_attempt(
    connections: Connections, proxy: FaultProxy
) -> None:
    proxy.refuses()
    with pytest.raises(ConnectionError):
        connections.execute(GET)
    proxy.passes()
    accepted = proxy.accepted
    proxy.cuts_next_reply_after(0)
    with pytest.raises(ConnectionError):
        connections.execute(GET)
    assert proxy.accepted == accepted + 1
    assert connections.execute(GET) == b"value"


def test_a_large_reply_is_whole(connections: Connections, control: redis.Redis) -> None:
    control.set("key", LARGE)
    assert connections.execute(GET) == LARGE
    assert connections.begin(GET * 3, 3)() == [LARGE] * 3
    assert connections.execute(pack("PING")) == b"PONG"


def test_error_replies_are_returned_and_the_connection_stays(connections: Connections, proxy: FaultProxy) -> None:
    accepted = proxy.accepted
    assert isinstance(connections.execute(pack("NONSENSE")), ResponseError)
    one, error, two = connections.begin(pack_all([("PING",), ("GET",), ("GET", "key")]), 3)()
    assert (one, type(error), two) == (b"PONG", ResponseError, b"value")
    assert isinstance(connections.execute(pack("NONSENSE", b"\xff\xfe")), ResponseError)
    assert connections.execute(GET) == b"value"
    assert proxy.accepted == accepted


def test_a_thousand_failures_leak_no_file_descriptor(
    connect: Connect, control: redis.Redis, proxy: FaultProxy, clean_redis: RedisServer
) -> None:
    connections = connect()
    process = psutil.Process()
    connections.execute(GET)
    proxy.refuses()
    before = process.num_fds()
    for _ in range(1_000):
        with pytest.raises(ConnectionError):
            connections.execute(GET)
    wrong_password = connect(clean_redis.url(0).replace(clean_redis.password, "wrong"))
    for _ in range(50):
        with pytest.raises(ConnectionError):
            wrong_password.execute(GET)
    assert process.num_fds() <= before
    proxy.passes()
    assert connections.execute(GET) == b"value"
