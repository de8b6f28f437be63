"""Fixtures of several test files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from refresher.embedded import RedisServer
from tests.support.publisher_harness import ScriptedBroker


@pytest.fixture
def control(clean_redis: RedisServer) -> Iterator[redis.Redis]:
    """A client of the test's own."""
    with redis.Redis.from_url(clean_redis.url(0)) as connected:
        yield connected


@pytest.fixture
def script() -> ScriptedBroker:
    """The broker of a publisher under test."""
    return ScriptedBroker()
