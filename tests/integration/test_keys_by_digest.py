"""``refresher explain``: all ways to name a key, and no secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import redis

from api_client.protocol.entry import Smoothed
from api_client.protocol.keys import make_key
from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer
from tests.support.command_line import CommandLine
from tests.support.lease_world import World

KEY = make_key("cache", "friends_of", {"name": "canary-77"}, 1)
NONCE = b"n0nce-77"


class ExplainCommand(CommandLine):
    """One key in any state, and the command."""

    def __init__(self, server: RedisServer, client: redis.Redis) -> None:
        super().__init__("explain", {"CACHE_REDIS_URL": server.url(0), "CACHE_BROKER_URL": server.url(1)})
        self.client, self.world = client, World(client, LeaseStore(client), KEY)


@pytest.fixture
def cli(clean_redis: RedisServer) -> Iterator[ExplainCommand]:
    with redis.Redis.from_url(clean_redis.url(0)) as client:
        yield ExplainCommand(clean_redis, client)


def test_a_running_key_is_explained_without_value_params_and_nonce(cli: ExplainCommand) -> None:
    cli.world.plant(7, delta=Smoothed(0.5, 0.25), beta=3.3, degree=10)
    cli.world.claim()
    run = cli.world.acquire(NONCE)
    report, shown = cli.run_json(KEY.entry), cli.run(KEY.entry).stdout
    assert (report["token"], report["delta"], report["degree"]) == (7, 0.5, 10)
    assert report["stored_bytes"] == cli.client.strlen(KEY.entry)
    assert (report["record"]["state"], report["record"]["token"]) == ("running", run.token)
    for text in (json.dumps(report), shown):
        assert not any(secret in text for secret in ("canary-77", NONCE.decode(), "value\n"))


def test_all_ways_to_name_a_key_find_the_same_key(cli: ExplainCommand) -> None:
    cli.world.plant(7)
    cli.world.claim()
    named = [
        (KEY.entry,), (KEY.record,), ("friends_of", "name=canary-77"), ("friends_of", KEY.short),
        ("friends_of", KEY.short[:6]),
    ]  # fmt: skip
    assert {cli.run_json(*one)["key"] for one in named} == {KEY.entry}


def test_a_digest_that_no_key_has_is_an_error(cli: ExplainCommand) -> None:
    done = cli.run("friends_of", KEY.short)
    assert done.exit_code == 1
    assert "Redis has no key of friends_of v1" in done.stderr


@pytest.mark.parametrize("arguments", [("x:y",), ("cache:dead1",), ("friends of",), ("friends_of", "name"), ()])
def test_wrong_usage_is_exit_code_2(cli: ExplainCommand, arguments: tuple[str, ...]) -> None:
    assert cli.run(*arguments).exit_code == 2


def test_an_ambiguous_digest_prefix_is_refused(cli: ExplainCommand) -> None:
    for digits in ("abcdef00", "abcdef11"):
        cli.client.set(f"cache:e1:{{friends_of:1:{digits * 4}}}", "no entry")
    done = cli.run("friends_of", "abcdef")
    assert done.exit_code == 2
    assert "give more digits" in done.stderr
    assert cli.run_json("friends_of", "abcdef1")["unreadable"] == "garbage"
