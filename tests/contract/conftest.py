"""Keys on which a test runs the scripts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer
from tests.support.lease_world import ClockedWorld, World
from tests.support.movable_clock import ClockedRedis


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_server.url()) as connected:
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
