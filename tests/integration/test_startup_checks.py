"""A worker's startup checks of cache and broker: also of a server that answers, but accepts no writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis

from refresher.embedded import RedisServer, free_port
from refresher.ops.startup_checks import broker_memory_problem, cache_problem
from refresher.settings import WorkerSettings

CHECKS = {"cache": cache_problem, "broker": broker_memory_problem}


@pytest.fixture
def client(own_redis: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(own_redis.url()) as opened:
        yield opened


def settings(url: str) -> WorkerSettings:
    return WorkerSettings(redis_url=url, broker_url=url)


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_a_writable_server_is_ok_and_the_probe_leaves_nothing(
    own_redis: RedisServer, client: redis.Redis, check: Callable[[WorkerSettings], str | None]
) -> None:
    assert check(settings(own_redis.url())) is None
    assert client.dbsize() == 0


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_a_full_server_and_a_replica_are_problems(
    own_redis: RedisServer, client: redis.Redis, check: Callable[[WorkerSettings], str | None]
) -> None:
    client.config_set("maxmemory", 1)
    assert "maxmemory" in str(check(settings(own_redis.url())))
    client.config_set("maxmemory", 0)
    client.execute_command("REPLICAOF", "127.0.0.1", str(free_port()))
    assert "read only replica" in str(check(settings(own_redis.url())))


def test_a_missing_permission_is_a_problem_of_the_cache_and_not_of_the_broker(
    own_redis: RedisServer, client: redis.Redis
) -> None:
    client.execute_command("ACL", "SETUSER", "weak", "on", ">pw-of-test", "~*", "+@all", "-set")
    weak = settings(f"redis://weak:pw-of-test@127.0.0.1:{own_redis.port}/0")
    assert "can't be used" in str(cache_problem(weak))
    assert broker_memory_problem(weak) is None


@pytest.mark.parametrize(("taken", "missing"), [("-publish", "+publish"), ("resetchannels", "&cache:n1:*")])
def test_a_user_that_may_not_publish_is_named_with_the_missing_permission(
    own_redis: RedisServer, client: redis.Redis, taken: str, missing: str
) -> None:
    client.execute_command("ACL", "SETUSER", "weak", "on", ">pw-of-test", "~*", "&*", "+@all", taken)
    problem = str(cache_problem(settings(f"redis://weak:pw-of-test@127.0.0.1:{own_redis.port}/0")))
    assert f"the user weak of CACHE_REDIS_URL lacks the permission {missing}: " in problem
    assert f"ACL SETUSER weak {missing}" in problem
    assert "pw-of-test" not in problem


def test_a_broker_that_is_not_redis_has_no_memory_check() -> None:
    assert broker_memory_problem(WorkerSettings(broker_url=f"amqp://127.0.0.1:{free_port()}//")) is None
