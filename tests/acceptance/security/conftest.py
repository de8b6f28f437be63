"""A cache and a broker with the users of deploy/redis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import redis

from refresher.embedded import RedisServer
from tests.support.redis_users import Users
from tests.support.requirements import skip_or_fail


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory, redis_server: RedisServer) -> Iterator[Users]:
    """One cache and one broker for a module."""
    with redis.Redis.from_url(redis_server.url()) as client:
        if int(str(client.info()["redis_version"]).partition(".")[0]) < 7:
            skip_or_fail("this redis-server is older than 7.0: it has neither read-only keys nor selectors")
    with ExitStack() as stack:
        yield Users(stack, tmp_path_factory.mktemp("users"))
