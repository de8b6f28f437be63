"""Commands with users that lack a permission: the error names it, and the user of deploy/redis that has it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis
from typer.testing import CliRunner

from api_client import CacheUnavailable, TriggerFailed
from api_client.protocol.keys import make_key
from api_client.transport.scripts import LeaseStore
from refresher.cli.commands import app
from refresher.flow.dead_letters import DeadLetters
from tests.contract.test_dead_letters import a_letter
from tests.support.lease_world import World
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


def test_the_error_of_a_denied_publication_names_the_users_that_may_publish(users: Users) -> None:
    error = error_of(users, *REFRESH, on_the_cache="operator", on_the_broker="flower")
    assert isinstance(error, TriggerFailed)
    assert "no permissions" in str(error).lower()
    assert str(error).endswith(": sign in as publisher or operator in CACHE_BROKER_URL (docs/how-to/users-and-tls.md)")


def status_as_operator(users: Users, on_the_broker: str) -> tuple[int, dict[str, Any]]:
    env = {
        "CACHE_REDIS_URL": users.url("cache", "operator"), "CACHE_BROKER_URL": users.url("broker", on_the_broker),
    }  # fmt: skip
    done = CliRunner().invoke(app, ["status", "--json"], env=env)
    return done.exit_code, json.loads(done.stdout)


@pytest.mark.usefixtures("patient_commands")
def test_status_shows_an_operator_what_its_permissions_allow(users: Users) -> None:
    with redis.Redis.from_url(users.cache.url()) as admin:
        world = World(admin, LeaseStore(admin), make_key("cache", "friends_of", {"n": 1}, 1))
        world.plant(1)
        world.claim()
        DeadLetters(admin, "cache").add(a_letter(7))
        admin.execute_command("ACL", "SETUSER", "operator", "-scan")
        try:
            exit_code, without = status_as_operator(users, "operator")
        finally:
            admin.execute_command("ACL", "SETUSER", "operator", "+scan")
        _, with_scan = status_as_operator(users, "publisher")
    assert exit_code == 0
    assert without["keys"]["problem"] == "this user of CACHE_REDIS_URL may not SCAN"
    assert (without["dead"]["open"], without["queues"]) == ({"q": 1}, {"refresh": 0, "miss": 0})
    assert (without["workers"], without["problems"]) == ([], {})
    row = with_scan["keys"]["queries"]["friends_of"]
    assert (row["keys"], row["headers"], row["queued"]) == (1, 1, 1)
    assert with_scan["workers"] is None
    assert "no permissions" in with_scan["problems"]["workers"].lower()
