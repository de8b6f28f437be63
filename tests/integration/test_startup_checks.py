"""A worker's startup checks of cache and broker: also of a server that answers, but accepts no writes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
import redis

from api_client.transport.scripts import SCRIPTS, source
from refresher.embedded import RedisServer, free_port
from refresher.ops.startup_checks import broker_memory_problem, cache_problem
from refresher.settings import WorkerSettings
from tests.support.deployment_files import ROOT
from tests.support.redis_memory import full

pytestmark = pytest.mark.usefixtures("patient_commands")
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
    with full(client):
        assert "maxmemory" in str(check(settings(own_redis.url())))
    client.execute_command("REPLICAOF", "127.0.0.1", str(free_port()))
    assert "read only replica" in str(check(settings(own_redis.url())))


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster"])
def test_a_cache_that_is_down_is_a_problem_and_raises_nothing(scheme: str) -> None:
    problem = str(cache_problem(WorkerSettings(redis_url=f"{scheme}://127.0.0.1:{free_port()}/0")))
    assert "can't be used: " in problem
    assert problem.endswith("; refreshes fail until it can")


def test_a_missing_permission_is_a_problem_of_the_cache_and_not_of_the_broker(
    own_redis: RedisServer, client: redis.Redis
) -> None:
    client.execute_command("ACL", "SETUSER", "weak", "on", ">pw-of-test", "~*", "+@all", "-set")
    weak = settings(f"redis://weak:pw-of-test@127.0.0.1:{own_redis.port}/0")
    assert "refreshes may need: +set; such refreshes fail" in str(cache_problem(weak))
    assert broker_memory_problem(weak) is None


COMMANDS = sorted(
    {command.lower() for name in SCRIPTS for command in re.findall(r"call\('([A-Z]+)'", source(name))} - {"publish"}
)


@pytest.fixture
def a_worker(own_redis: RedisServer, client: redis.Redis) -> Callable[..., WorkerSettings]:
    """Settings of a user of deploy/redis, with changes to what it may do."""
    template = (ROOT / "deploy/redis/cache.acl.template").read_text(encoding="utf-8").replace("NAMESPACE", "cache")
    (rules,) = re.findall(r"^user worker on #SHA256_OF_PASSWORD (.*(?:\n .*)*)", template, re.MULTILINE)

    def made(*changes: str) -> WorkerSettings:
        client.execute_command("ACL", "SETUSER", "worker", "reset", "on", ">pw-of-test", *rules.split(), *changes)
        return settings(f"redis://worker:pw-of-test@127.0.0.1:{own_redis.port}/0")

    return made


@pytest.mark.parametrize("command", [*COMMANDS, "evalsha", "eval"])
def test_a_command_of_a_script_that_a_worker_lacks_is_named(
    a_worker: Callable[..., WorkerSettings], command: str
) -> None:
    problem = str(cache_problem(a_worker(f"-{command}")))
    assert f"the user worker of CACHE_REDIS_URL lacks permissions that refreshes may need: +{command}; " in problem
    assert f"ACL SETUSER worker +{command}" in problem
    assert "pw-of-test" not in problem


def test_the_worker_of_the_template_lacks_nothing(a_worker: Callable[..., WorkerSettings], client: redis.Redis) -> None:
    assert cache_problem(a_worker()) is None
    assert client.acl_log() == []
    assert client.dbsize() == 0


@pytest.mark.parametrize("kind", ["e1", "l1", "v1", "b1", "t1", "g1", "c1", "p1", "dead1"])
def test_a_kind_of_key_that_a_worker_lacks_is_named(a_worker: Callable[..., WorkerSettings], kind: str) -> None:
    kinds = {"e1:*", "l1:*", "v1:*", "b1:*", "t1:*", "g1:*", "c1", "p1", "dead1"}
    others = [f"~cache:{one}" for one in kinds if not one.startswith(kind)]
    (lacking,) = [f"%RW~cache:{one}" for one in kinds if one.startswith(kind)]
    assert f"refreshes may need: {lacking}; " in str(cache_problem(a_worker("resetkeys", *others)))


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
