"""``refresher status`` as the operator of deploy/redis: it shows what is permitted, and reports what is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis
from typer.testing import CliRunner

from api_client.protocol.keys import make_key
from api_client.transport.scripts import LeaseStore
from refresher.cli.commands import app
from refresher.flow.dead_letters import DeadLetters
from tests.contract.test_dead_letters import a_letter
from tests.support.lease_world import World
from tests.support.redis_users import Users


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
        admin.execute_command("ACL", "SETUSER", "operator", "-scan", "-object|freq")
        try:
            exit_code, without = status_as_operator(users, "operator")
        finally:
            admin.execute_command("ACL", "SETUSER", "operator", "+scan", "+object|freq")
        _, with_scan = status_as_operator(users, "publisher")
    assert exit_code == 0
    assert without["keys"]["problem"] == "this user of CACHE_REDIS_URL may not SCAN"
    assert (without["dead"]["open"], without["queues"]) == ({"q": 1}, {"refresh": 0, "miss": 0})
    assert (without["workers"], without["problems"]) == ([], {})
    row = with_scan["keys"]["queries"]["friends_of"]
    assert (row["keys"], row["headers"], row["queued"]) == (1, 1, 1)
    assert "LFU" in with_scan["keys"]["hottest_problem"]
    assert with_scan["workers"] is None
    assert "no permissions" in with_scan["problems"]["workers"].lower()
