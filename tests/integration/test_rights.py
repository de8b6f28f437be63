"""`doctor` on the permissions of a cache user: names the missing ones as an ACL file spells them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from api_client import ReaderSettings
from refresher.embedded import RedisServer
from refresher.ops.doctor.findings import Level
from refresher.ops.permissions import user_of
from tests.support.doctor import run_check

pytestmark = pytest.mark.usefixtures("patient_commands")


@pytest.fixture
def admin(clean_redis: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(clean_redis.url()) as client:
        yield client
        client.execute_command("ACL", "DELUSER", "weak")


@pytest.mark.parametrize(
    ("taken", "level", "missing"),
    [
        (["-eval", "-evalsha"], Level.PROBLEM, "+eval +evalsha"),
        (["-script", "-hmget"], Level.PROBLEM, "+hmget"),
        (["-hmget", "-info"], Level.PROBLEM, "+hmget"),
        (["resetkeys", "~cache:e1:*", "~cache:dead1"], Level.PROBLEM, "%RW~cache:l1:*"),
        (["resetkeys", "~cache:l1:*", "~cache:dead1"], Level.PROBLEM, "%R~cache:e1:*"),
        (["-info", "-zrem"], Level.WARNING, "+info +zrem"),
        (["-client"], Level.WARNING, "+client|list"),
        (["-scan"], Level.WARNING, "+scan"),
        (["resetkeys", "~cache:e1:*", "~cache:l1:*", "~cache:v1:*", "~cache:s1"], Level.WARNING, "%RW~cache:dead1"),
        (["resetkeys", "~cache:e1:*", "~cache:l1:*", "~cache:dead1"], Level.WARNING, "%R~cache:v1:* %R~cache:s1"),
        (["-zrange"], Level.WARNING, "+zrange"),
        (["resetchannels"], Level.WARNING, "&cache:n1:*"),
        ([], Level.OK, ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_missing_permission_is_named_as_in_an_acl_file(
    admin: redis.Redis, clean_redis: RedisServer, taken: list[str], level: Level, missing: str
) -> None:
    found = run_check("rights", redis_url=url_of_a_user_without(taken, admin, clean_redis))
    assert (found.level, found.message.startswith("the user weak ")) == (level, True)
    assert found.message.partition(" need: ")[2] == missing
    assert bool(found.remedy) == bool(missing)
    assert admin.dbsize() == 0


@pytest.mark.parametrize(
    ("taken", "local_max_entries", "level", "missing"),
    [
        (["-hmget", "-subscribe"], 0, Level.PROBLEM, "+hmget"),
        (["-subscribe", "-zrange"], 0, Level.WARNING, "+subscribe +zrange"),
        (["resetchannels"], 0, Level.WARNING, "&cache:n1:*"),
        (["resetkeys", "~cache:e1:*", "~cache:l1:*"], 0, Level.WARNING, "%R~cache:v1:*"),
        (["-client"], 1, Level.WARNING, "+client|tracking"),
        (["-client"], 0, Level.OK, ""),
        (["-info", "-scan", "-object", "-publish", "-zrevrange", "-zrangebyscore", "-zrem"], 1, Level.OK, ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_reader_s_user_needs_only_the_permissions_that_readers_use(
    admin: redis.Redis, clean_redis: RedisServer, taken: list[str], local_max_entries: int, level: Level, missing: str
) -> None:
    url = url_of_a_user_without(taken, admin, clean_redis)
    reader = ReaderSettings(local_max_entries=local_max_entries)
    found = run_check("rights", redis_url=url, reader=reader, as_reader=True)
    assert (found.level, found.message.partition(" need: ")[2]) == (level, missing)
    assert bool(found.remedy) == bool(missing)
    assert admin.dbsize() == 0


def url_of_a_user_without(taken: list[str], admin: redis.Redis, server: RedisServer) -> str:
    admin.execute_command("ACL", "SETUSER", "weak", "reset", "on", ">x", "~*", "&*", "+@all", *taken)
    return f"redis://weak:x@{server.host}:{server.port}/0"


@pytest.mark.parametrize(
    ("url", "user"),
    [
        ("redis://127.0.0.1/0", "default"),
        ("redis://:secret@127.0.0.1/0", "default"),
        ("redis://me:secret@127.0.0.1/0", "me"),
        ("rediss+cluster://m%40e:secret@127.0.0.1", "m@e"),
        ("redis+sentinel://me:secret@h/master/0?sentinel_username=finder&sentinel_password=y", "me"),
    ],
)
def test_user_of_returns_the_redis_user_of_a_url(url: str, user: str) -> None:
    assert user_of(url) == user
