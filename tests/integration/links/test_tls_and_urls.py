"""URLs as redis-py understands them, for both kinds of connections: TLS, unix sockets, databases, passwords."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import redis
import uvloop
from redis.exceptions import AuthenticationError

from api_client.transport.connection_maker import connection_maker
from api_client.transport.pool import Connections
from api_client.transport.redis_py import connect
from api_client.transport.wire import pack
from refresher.embedded import RedisServer, free_port
from tests.servers.redis_binaries import system_redis
from tests.support.authority import Authority
from tests.support.multiplexed import patient
from tests.support.waiting import MAX_WAIT_SECONDS

Execute: TypeAlias = Callable[..., list[Any]]
LARGE = "x" * 3_000_000


def execute_sync(url: str, *commands: tuple[str, ...]) -> list[Any]:
    maker = connection_maker(url, timeout_seconds=MAX_WAIT_SECONDS)
    connections = Connections(maker, timeout_seconds=MAX_WAIT_SECONDS, reply_seconds=MAX_WAIT_SECONDS)
    try:
        return [connections.execute(pack(*command)) for command in commands]
    finally:
        connections.drop_idle()


async def _execute(url: str, commands: tuple[tuple[str, ...], ...]) -> list[Any]:
    connections = patient(url)
    try:
        return [await connections.execute(pack(*command)) for command in commands]
    finally:
        connections.close()
        for _ in range(3):
            await asyncio.sleep(0)  # the transport says goodbye


def execute_asyncio(url: str, *commands: tuple[str, ...]) -> list[Any]:
    return asyncio.run(_execute(url, commands))


def execute_uvloop(url: str, *commands: tuple[str, ...]) -> list[Any]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_execute(url, commands))


@pytest.fixture(params=[execute_sync, execute_asyncio], ids=["sync", "asyncio"])
def execute(request: pytest.FixtureRequest) -> Execute:
    chosen: Execute = request.param
    return chosen


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def tls_url(authority: Authority) -> Iterator[str]:
    """A Redis with a TLS port; the URL does not name the certificate yet."""
    port = free_port()
    with RedisServer.start(binary=system_redis(), extra_config=authority.issue("redis").of_redis(port)) as server:
        yield f"rediss://:{server.password}@{server.host}:{port}/0"


@pytest.mark.slow
@pytest.mark.parametrize("execute", [execute_sync, execute_asyncio, execute_uvloop])  # TLS is each event loop's own
def test_tls_with_a_trusted_certificate_connects(execute: Execute, tls_url: str, authority: Authority) -> None:
    url = f"{tls_url}?ssl_ca_certs={authority.root}"
    assert execute(url, ("PING",), ("SET", "key", LARGE), ("GET", "key"), ("GET", "none")) == [
        b"PONG", b"OK", LARGE.encode(), None,
    ]  # fmt: skip


def test_a_unix_socket_url_works_for_reads_and_steps(execute: Execute, tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    with RedisServer.start(extra_config={"unixsocket": str(path)}) as server:
        url = f"unix://:{server.password}@{path}?db=3"
        assert execute(url, ("SET", "key", "value"), ("GET", "key")) == [b"OK", b"value"]
        with connect(url, timeout_seconds=MAX_WAIT_SECONDS) as client:  # for the steps
            assert client.get("key") == b"value"


def test_the_url_s_database_and_password_are_used(execute: Execute, clean_redis: RedisServer) -> None:
    assert execute(clean_redis.url(7), ("SET", "key", "value")) == [b"OK"]
    assert execute(clean_redis.url(0), ("GET", "key")) == [None]
    with redis.Redis.from_url(clean_redis.url(7)) as client:
        assert client.get("key") == b"value"
    with pytest.raises(AuthenticationError):
        execute(clean_redis.url(0).replace(clean_redis.password, "wrong"), ("PING",))
