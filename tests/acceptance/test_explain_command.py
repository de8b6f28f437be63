"""``refresher explain`` as a user runs it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from typer.testing import Result

from api_client.protocol import lease
from api_client.protocol.entry import Smoothed
from api_client.protocol.keys import make_key
from api_client.protocol.live_versions import register
from api_client.protocol.messages import RefreshItem
from api_client.transport.scripts import LeaseStore
from api_client.trigger.broker import CeleryBroker
from refresher.embedded import RedisServer, free_port
from tests.support.command_line import CommandLine
from tests.support.lease_world import World

ROOT = Path(__file__).parents[2]
SECRET = "canary-8d13"


class Cache:
    """A key with an entry planted by the test, and the command that explains it."""

    def __init__(self, server: RedisServer, client: redis.Redis) -> None:
        self.server = server
        key = make_key("cache", "friends_of", {"person_id": 42, "name": SECRET, "tags": ["a", 1]}, 2)
        self.world = World(client, LeaseStore(client), key)
        self.params = ["person_id=42", f"name={SECRET}", '{"tags": ["a", 1]}', "--version", "2"]

    def plant(self, left_seconds: float) -> None:
        now_us = self.world.now_us()
        self.world.plant(
            now_us - 40_000_000, soft_expiry_us=now_us + int(left_seconds * 1e6), ttl_seconds=3_600.0,
            read_started_us=now_us - 40_000_000, fetched_at_us=now_us - 39_000_000,
            beta=3.3, degree=10, delta=Smoothed(2.5, 0.5),
        )  # fmt: skip

    def explain(self, *arguments: str, **changes: str) -> Result:
        urls = {"CACHE_REDIS_URL": self.server.url(0), "CACHE_BROKER_URL": self.server.url(1)}
        return CommandLine("explain", {**urls, "CACHE_REDIS_TIMEOUT": "20s"}).run(*arguments, **changes)


@pytest.fixture
def cache(clean_redis: RedisServer) -> Iterator[Cache]:
    with redis.Redis.from_url(clean_redis.url(0)) as client:
        yield Cache(clean_redis, client)


def test_explain_shows_why_a_key_is_refreshed_and_by_which_worker(cache: Cache) -> None:
    cache.plant(-30.0)
    call = lease.acquire(
        cache.world.key, nonce=b"nonce--1", claim_number=cache.world.claim().number, ticket="",
        lease_seconds=600, limit_seconds=600, retention_seconds=600, by="celery@web-1:4711",
    )  # fmt: skip
    cache.world.store.run(call)
    broker = CeleryBroker(cache.server.url(1), "cache")
    broker.publish([RefreshItem(query="q")], has_waiter=False)
    for _ in range(2):
        broker.publish([RefreshItem(query="q")], has_waiter=True)
    broker.close()
    done = cache.explain("friends_of", *cache.params)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "every read triggers a refresh; celery@web-1:4711 loads it" in done.stdout
    assert "δ 2.5 s, β 3.3 (degree 10, σ 1), at most 30 min early; likely now: 100 %" in done.stdout
    assert "1 background, 2 blocking" in done.stdout
    assert cache.world.key.entry in done.stdout
    assert SECRET not in done.stdout


def test_explain_fits_a_narrow_terminal(cache: Cache) -> None:
    cache.plant(900.0)
    done = cache.explain("friends_of", *cache.params, COLUMNS="60")
    assert max(map(len, done.stdout.splitlines())) <= 60
    assert "not refreshed: 15 min left;" in done.stdout


def test_explain_prints_json(cache: Cache) -> None:
    cache.plant(900.0)
    cache.world.claim()
    said = json.loads(cache.explain("friends_of", *cache.params, "--json").stdout)
    assert (said["state"], said["degree"], said["record"]["state"]) == ("fresh", 10, "queued")
    assert (said["queue_length"], said["miss_queue_length"]) == (0, 0)
    assert said["ttl_remaining"] == pytest.approx(900, abs=60)
    assert said["record"]["by"].endswith(f":{os.getpid()}")


def test_explain_reports_a_never_requested_key_as_a_miss_with_exit_code_0(cache: Cache) -> None:
    done = cache.explain("friends_of", "person_id=7")
    assert done.exit_code == 0
    assert "a miss: there is no entry; the next read will trigger a refresh and wait for it" in done.stdout
    unknown = "no worker has registered it: is its name right, and is a worker running?"
    assert unknown in done.stdout
    cache.world.store.run(register("cache", "friends_of", 1, lives_seconds=600))
    assert unknown not in cache.explain("friends_of", "person_id=7").stdout
    assert unknown in cache.explain("friends_of", "person_id=7", "--version", "2").stdout


def test_explain_without_a_broker_reports_everything_else(cache: Cache) -> None:
    done = cache.explain("friends_of", CACHE_BROKER_URL=f"redis://:{SECRET}@127.0.0.1:{free_port()}/1")
    assert done.exit_code == 0
    assert "the broker at CACHE_BROKER_URL can't be queried" in done.stdout
    assert SECRET not in done.stdout + done.stderr


def test_wrong_usage_is_exit_code_2(cache: Cache) -> None:
    done = cache.explain("friends of")
    assert done.exit_code == 2
    assert "'friends of'" in done.stderr
    assert "Traceback" not in done.stderr
