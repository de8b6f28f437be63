"""What doctor says of the rights of a user of the cache: which are missing, as an ACL file spells them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from refresher.embedded import RedisServer
from refresher.ops.doctor.findings import Level
from refresher.ops.permissions import user_of
from tests.support.doctor import run_check


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
        (["resetkeys", "~cache:e1:*", "~cache:l1:*", "~cache:v1:*"], Level.WARNING, "%RW~cache:dead1"),
        (["resetkeys", "~cache:e1:*", "~cache:l1:*", "~cache:dead1"], Level.WARNING, "%RW~cache:v1:*"),
        (["-zrange"], Level.WARNING, "+zrange"),
        (["resetchannels"], Level.WARNING, "&cache:n1:*"),
        ([], Level.OK, ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_missing_right_is_named(
    admin: redis.Redis, clean_redis: RedisServer, taken: list[str], level: Level, missing: str
) -> None:
    admin.execute_command("ACL", "SETUSER", "weak", "reset", "on", ">x", "~*", "&*", "+@all", *taken)
    url = f"redis://weak:x@{clean_redis.host}:{clean_redis.port}/0"
    found = run_check("rights", redis_url=url)
    assert (found.level, found.message.startswith("the user weak ")) == (level, True)
    assert found.message.partition(" need: ")[2] == missing
    assert bool(found.remedy) == bool(missing)
    assert admin.dbsize() == 0


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
def test_the_user_of_a_url(url: str, user: str) -> None:
    assert user_of(url) == user
