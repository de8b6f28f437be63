"""``refresher inspect``: all fields of a key, however it is named, and no secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec
import pytest
import redis

from api_client.protocol.entry import Smoothed
from api_client.protocol.keys import make_key
from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer
from refresher.flow.dead_letters import DeadLetters
from tests.contract.test_dead_letters import a_letter
from tests.support.command_line import CommandLine
from tests.support.lease_world import World

KEY = make_key("cache", "friends_of", {"name": "canary-77"}, 1)
NONCE = b"n0nce-77"


class InspectCommand(CommandLine):
    """One key in any state, and the command."""

    def __init__(self, server: RedisServer, client: redis.Redis) -> None:
        super().__init__("inspect", {"CACHE_REDIS_URL": server.url(0), "CACHE_BROKER_URL": server.url(1)})
        self.client, self.world = client, World(client, LeaseStore(client), KEY)


@pytest.fixture
def cli(clean_redis: RedisServer) -> Iterator[InspectCommand]:
    with redis.Redis.from_url(clean_redis.url(0)) as client:
        yield InspectCommand(clean_redis, client)


def test_each_field_is_shown_and_neither_value_nor_params_nor_nonce(cli: InspectCommand) -> None:
    cli.world.plant(7, delta=Smoothed(0.5, 0.25), beta=3.3, degree=10)
    cli.world.claim()
    run = cli.world.acquire(NONCE)
    letters = DeadLetters(cli.client, "cache")
    letters.add(a_letter(5, query="friends_of"))
    letters.add(msgspec.structs.replace(a_letter(6, query="friends_of"), digest=KEY.digest.hex()))
    report, shown = cli.run_json(KEY.entry), cli.run(KEY.entry).stdout
    entry, record = report["entry"], report["record"]
    assert (entry["token"], entry["delta"], entry["delta_deviation"], entry["degree"]) == (7, 0.5, 0.25, 10)
    assert entry["bytes"] == entry["header_bytes"] + entry["payload_bytes"] == cli.client.strlen(KEY.entry)
    assert (record["state"], record["token"]) == ("running", str(run.token))
    assert record["by"]
    assert "nonce" not in record
    assert report["dead_letters"] == [f"6-{KEY.digest.hex()[:8]}"]
    assert report["record_left"] > 0
    for text in (json.dumps(report), shown):
        assert not any(secret in text for secret in ("canary-77", NONCE.decode(), "value\n"))
    assert f"friends_of v1 {KEY.short}" in shown
    assert all(f"  {name} " in shown for name in (*entry, *record))


def test_all_ways_to_name_a_key_find_the_same_key(cli: InspectCommand) -> None:
    cli.world.plant(7)
    cli.world.claim()
    named = [
        (KEY.entry,), (KEY.record,), ("friends_of", "name=canary-77"), ("friends_of", KEY.short),
        ("friends_of", KEY.short[:6]),
    ]  # fmt: skip
    assert {cli.run_json(*one)["key"] for one in named} == {KEY.entry}


def test_a_missing_key_is_reported(cli: InspectCommand) -> None:
    assert "  none\n" in cli.run(KEY.entry).stdout
    assert cli.run_json(KEY.entry, exit_code=1)["entry"] is None
    done = cli.run("friends_of", KEY.short)
    assert done.exit_code == 1
    assert "Redis has no key of friends_of v1" in done.stderr


@pytest.mark.parametrize("arguments", [("x:y",), ("cache:dead1",), ("friends of",), ("friends_of", "name"), ()])
def test_wrong_usage_is_exit_code_2(cli: InspectCommand, arguments: tuple[str, ...]) -> None:
    assert cli.run(*arguments).exit_code == 2


def test_an_ambiguous_digest_prefix_is_refused(cli: InspectCommand) -> None:
    for digits in ("abcdef00", "abcdef11"):
        cli.client.set(f"cache:e1:{{friends_of:1:{digits * 4}}}", "no entry")
    done = cli.run("friends_of", "abcdef")
    assert done.exit_code == 2
    assert "give more digits" in done.stderr
    report = cli.run_json("friends_of", "abcdef1")
    assert (report["unreadable"], report["entry"]) == ("garbage", {"bytes": len("no entry")})
