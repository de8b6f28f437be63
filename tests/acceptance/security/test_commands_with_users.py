"""Commands with users that lack a permission: the error names it, and the user of deploy/redis that has it."""

from __future__ import annotations

import pytest
import redis
from typer.testing import CliRunner

from api_client import CacheUnavailable, TriggerFailed
from refresher.cli.commands import app
from tests.support.redis_users import Users

pytestmark = pytest.mark.usefixtures("patient_commands")
DEAD = ("dead", "retry", "--all")
INVALIDATE = ("invalidate", "q")
LACKING_FOR_TAGS = (
    "%RW~cache:c1 (+set %RW~cache:c1) (+zadd +zrem %RW~cache:p1) +zrangebyscore %RW~cache:t1:* %RW~cache:g1:*"
)
INVALIDATE_TAG = ("invalidate", "--tag", "x")
REFRESH = ("refresh", "q", "--wait", "0")


def error_of(users: Users, *command: str, on_the_cache: str, on_the_broker: str = "publisher") -> BaseException | None:
    env = {
        "CACHE_REDIS_URL": users.url("cache", on_the_cache), "CACHE_BROKER_URL": users.url("broker", on_the_broker),
        "CACHE_REDIS_TIMEOUT": "10s",
    }  # fmt: skip
    return CliRunner().invoke(app, command, env=env).exception


@pytest.mark.parametrize(
    ("command", "user", "missing", "needed"),
    [
        (INVALIDATE, "operator", "+setrange %RW~cache:e1:* %RW~cache:v1:*", "invalidator"),
        (INVALIDATE, "reader", "+publish +setrange %RW~cache:e1:* %RW~cache:v1:*", "invalidator"),
        (
            INVALIDATE_TAG,
            "reader",
            f"+publish +setrange %RW~cache:e1:* %RW~cache:v1:* {LACKING_FOR_TAGS}",
            "invalidator",
        ),
        (DEAD, "reader", "+zrevrange +zrangebyscore +zrem", "operator"),
        (DEAD, "invalidator", "+zrevrange %RW~cache:dead1", "operator"),
        (("inspect", "q"), "reader", "+zrevrange +zrangebyscore +zrem", "operator"),
    ],
)
def test_the_error_names_the_missing_permissions_and_a_user_that_has_them(
    users: Users, command: tuple[str, ...], user: str, missing: str, needed: str
) -> None:
    error = error_of(users, *command, on_the_cache=user)
    assert isinstance(error, CacheUnavailable)
    assert str(error) == (
        f"the user {user} of CACHE_REDIS_URL lacks {missing}: sign in as {needed} (docs/how-to/users-and-tls.md)"
    )


@pytest.mark.parametrize(
    ("command", "taken", "missing"),
    [
        (REFRESH, ["-hmget"], "+hmget"),
        (("explain", "q"), ["-hgetall"], "+hgetall"),
        (("warm", "q"), ["-get"], "+get"),
        (DEAD, ["resetkeys", "~cache:e1:*", "~cache:l1:*"], "%RW~cache:dead1"),
        (INVALIDATE, ["resetkeys", "~cache:l1:*", "~cache:v1:*"], "%RW~cache:e1:*"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_the_error_names_the_missing_command_or_key_pattern(
    users: Users, command: tuple[str, ...], taken: list[str], missing: str
) -> None:
    with redis.Redis.from_url(users.cache.url()) as admin:
        admin.execute_command("ACL", "SETUSER", "weak", "reset", "on", ">x", "~*", "&*", "+@all", *taken)
        users.passwords["cache", "weak"] = "x"
        error = error_of(users, *command, on_the_cache="weak")
        admin.execute_command("ACL", "DELUSER", "weak")
    assert f"the user weak of CACHE_REDIS_URL lacks {missing}: sign in as " in str(error)


def test_the_error_of_a_denied_publication_names_the_users_that_may_publish(users: Users) -> None:
    error = error_of(users, *REFRESH, on_the_cache="operator", on_the_broker="flower")
    assert isinstance(error, TriggerFailed)
    assert "no permissions" in str(error).lower()
    assert str(error).endswith(": sign in as publisher or operator in CACHE_BROKER_URL (docs/how-to/users-and-tls.md)")
