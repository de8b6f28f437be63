"""The proxy that the tests of faults stand on: each fault on a real Redis, and back to normal."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
import redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, TimeoutError
from redis.retry import Retry

from refresher.embedded import RedisServer
from tests.support.fault_proxy import LOOPBACK, FaultProxy
from tests.support.waiting import eventually

TIMEOUT_SECONDS = 0.2
PATIENT_SECONDS = 10.0


@pytest.fixture
def proxy(clean_redis: RedisServer) -> Iterator[FaultProxy]:
    with FaultProxy.before(clean_redis.url()) as started:
        yield started


@pytest.fixture
def server(clean_redis: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(clean_redis.url()) as client:
        yield client


def connected(proxy: FaultProxy, clean_redis: RedisServer, timeout_seconds: float = TIMEOUT_SECONDS) -> redis.Redis:
    """A client that tries once."""
    return redis.Redis.from_url(
        proxy.url(clean_redis.url()),
        socket_timeout=timeout_seconds,
        socket_connect_timeout=timeout_seconds,
        retry=Retry(NoBackoff(), 0),
    )


@pytest.fixture
def client(proxy: FaultProxy, clean_redis: RedisServer) -> Iterator[redis.Redis]:
    """A client whose connection is open."""
    with connected(proxy, clean_redis) as made:
        assert made.ping()
        yield made


def test_refused_is_a_closed_port_and_ends_what_is_open(
    proxy: FaultProxy, clean_redis: RedisServer, client: redis.Redis
) -> None:
    proxy.refuses()
    assert proxy.open_connections == 0
    with pytest.raises(ConnectionError):
        client.ping()
    with connected(proxy, clean_redis) as another, pytest.raises(ConnectionError, match="refused"):
        another.ping()
    proxy.passes()
    assert client.ping()


def test_a_hang_silences_open_and_new_connections_and_delivers_late(
    proxy: FaultProxy, clean_redis: RedisServer, client: redis.Redis, server: redis.Redis
) -> None:
    proxy.hangs()
    with pytest.raises(TimeoutError):
        client.set("key", "late")
    with connected(proxy, clean_redis) as another, pytest.raises(TimeoutError):
        another.ping()
    assert proxy.accepted == 2  # it was accepted all the same
    assert server.get("key") is None
    proxy.passes()
    eventually(lambda: server.get("key") == b"late", "what was held back goes on")
    assert client.ping()


def test_dropped_replies_leave_the_request_done(proxy: FaultProxy, client: redis.Redis, server: redis.Redis) -> None:
    proxy.drops_replies()
    with pytest.raises(TimeoutError):
        client.incr("key")
    assert server.get("key") == b"1"
    proxy.passes()
    assert client.incr("key") == 2


@pytest.mark.parametrize("orderly", [False, True], ids=["rst", "fin"])
def test_a_cut_ends_open_connections_and_takes_new_ones(proxy: FaultProxy, client: redis.Redis, orderly: bool) -> None:
    with socket.create_connection((LOOPBACK, proxy.port), PATIENT_SECONDS) as raw:
        eventually(lambda: proxy.open_connections == 2, "both are open")
        proxy.cuts(orderly=orderly)
        assert proxy.open_connections == 0
        if orderly:
            assert raw.recv(1) == b""
        else:
            with pytest.raises(ConnectionResetError):
                raw.recv(1)
    assert client.ping()
    assert proxy.accepted == 3


def test_slow_holds_each_reply_back(proxy: FaultProxy, clean_redis: RedisServer, client: redis.Redis) -> None:
    with connected(proxy, clean_redis, PATIENT_SECONDS) as patient:
        patient.ping()
        proxy.slows(2 * TIMEOUT_SECONDS)
        began = time.monotonic()
        assert patient.ping()
        assert time.monotonic() - began >= 2 * TIMEOUT_SECONDS
    with pytest.raises(TimeoutError):
        client.ping()
    proxy.passes()
    assert client.ping()
