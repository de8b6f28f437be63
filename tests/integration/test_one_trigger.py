"""One trigger per key: scripts run on Redis while many threads, in one process or two, read a stale value.

A claim is one script; a claim that finds the key queued runs a second one, which checks whether it is due to be
published again. There is no worker, so only the process' own memory suppresses triggers.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from api_client import AsyncCacheClient, CacheClient, ReaderSettings, RefreshState
from api_client.protocol.keys import CacheKey
from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer
from tests.support.lease_world import World
from tests.support.waiting import MAX_WAIT_SECONDS

pytestmark = pytest.mark.usefixtures("patient_publishers")
ROOT = Path(__file__).parents[2]
READS, THREADS = 1_000, 8
READER = """
import json, sys, time
from concurrent.futures import ThreadPoolExecutor
from api_client import CacheClient, ReaderSettings
from tests.support.patience import publish_patiently
from tests.support.waiting import MAX_WAIT_SECONDS
publish_patiently()
settings = ReaderSettings(redis_url=sys.argv[1], broker_url=sys.argv[2], redis_timeout_seconds=MAX_WAIT_SECONDS)
with CacheClient(settings) as client, ThreadPoolExecutor(8) as pool:
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    done = list(pool.map(lambda _: client.get_entry("q").refresh.value, range(int(sys.argv[3]))))
    client.flush(MAX_WAIT_SECONDS)
    print(json.dumps({"seconds": time.monotonic() - began, "triggered": done.count("triggered")}))
"""


@pytest.fixture
def client(clean_redis: RedisServer) -> Iterator[CacheClient]:
    settings = ReaderSettings(
        redis_url=clean_redis.url(0), broker_url=clean_redis.url(1), redis_timeout_seconds=MAX_WAIT_SECONDS
    )
    with CacheClient(settings) as made:
        yield made


def plant_stale(control: redis.Redis, key: CacheKey, token: int = 7) -> World:
    world = World(control, LeaseStore(control), key)
    world.plant(token, soft_expiry_us=1)
    return world


def scripts_run(control: redis.Redis) -> int:
    stats = control.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))


def load_scripts(client: CacheClient, control: redis.Redis) -> None:
    """Run the scripts once, so that none has to be loaded while they are counted."""
    world = plant_stale(control, client.key("another"))
    world.claim()
    world.republish()
    control.config_resetstat()


def max_scripts(elapsed_seconds: float) -> int:
    # A claim at once, then one per second: each of those gets "queued", and checks whether it is due again.
    return 1 + 2 * int(elapsed_seconds)


@pytest.mark.promise("Reading", "Any number of readers in a process claim a stale key once per second")
def test_a_thousand_reads_of_a_stale_key_by_many_threads_make_one_claim_per_second(
    client: CacheClient, control: redis.Redis
) -> None:
    plant_stale(control, client.key("q"))
    load_scripts(client, control)
    began = time.monotonic()
    with ThreadPoolExecutor(THREADS) as pool:
        refreshes = list(pool.map(lambda _: client.get_entry("q").refresh, range(READS)))
    elapsed_seconds = time.monotonic() - began
    assert client.flush(MAX_WAIT_SECONDS)
    assert 1 <= scripts_run(control) <= max_scripts(elapsed_seconds)
    assert refreshes.count(RefreshState.TRIGGERED) <= 1 + int(elapsed_seconds)
    assert set(refreshes) == {RefreshState.TRIGGERED, RefreshState.SUPPRESSED}


def test_a_thousand_reads_of_a_stale_key_by_many_tasks_make_one_claim_per_second(
    client: CacheClient, control: redis.Redis
) -> None:
    plant_stale(control, client.key("q"))
    load_scripts(client, control)
    settings = client.settings
    began = time.monotonic()

    async def read() -> list[RefreshState]:
        async with AsyncCacheClient(settings) as reader:
            entries = await asyncio.gather(*(reader.get_entry("q") for _ in range(READS)))
            assert await reader.flush(MAX_WAIT_SECONDS)
        return [entry.refresh for entry in entries]

    refreshes = asyncio.run(read())
    elapsed_seconds = time.monotonic() - began
    assert 1 <= scripts_run(control) <= max_scripts(elapsed_seconds)
    assert refreshes.count(RefreshState.TRIGGERED) <= 1 + int(elapsed_seconds)
    assert set(refreshes) == {RefreshState.TRIGGERED, RefreshState.SUPPRESSED}


def test_a_thousand_reads_of_many_stale_keys_make_one_claim_per_key_and_second(
    client: CacheClient, control: redis.Redis
) -> None:
    keys = [{"n": n} for n in range(20)]
    for params in keys:
        plant_stale(control, client.key("q", params))
    load_scripts(client, control)
    began = time.monotonic()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda n: client.get("q", keys[n % len(keys)]), range(READS)))
    elapsed_seconds = time.monotonic() - began
    assert client.flush(MAX_WAIT_SECONDS)
    assert len(keys) <= scripts_run(control) <= len(keys) * max_scripts(elapsed_seconds)


def test_two_processes_trigger_once_each(clean_redis: RedisServer, client: CacheClient, control: redis.Redis) -> None:
    plant_stale(control, client.key("q"))
    load_scripts(client, control)
    command = [sys.executable, "-c", READER, clean_redis.url(0), clean_redis.url(1), str(READS)]
    readers = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
    reports = []
    for reader in readers:
        assert reader.stdin is not None
        reader.stdin.write("go\n")
        reader.stdin.flush()
    for reader in readers:
        reports.append(json.loads(reader.communicate(timeout=MAX_WAIT_SECONDS)[0]))
        assert reader.returncode == 0
    most = sum(max_scripts(each["seconds"]) + 1 for each in reports)  # the second process gets "queued" at once
    assert 2 <= scripts_run(control) <= most
    assert sum(each["triggered"] for each in reports) <= sum(1 + int(each["seconds"]) for each in reports)


@pytest.mark.usefixtures("suppression_outlasts_the_test")
def test_a_changed_entry_ends_the_suppression(client: CacheClient, control: redis.Redis) -> None:
    world = plant_stale(control, client.key("q"))
    load_scripts(client, control)
    assert client.get_entry("q").refresh is RefreshState.TRIGGERED
    assert client.flush(MAX_WAIT_SECONDS)
    assert client.get_entry("q").refresh is RefreshState.SUPPRESSED
    assert scripts_run(control) == 1
    world.acquire()
    world.plant(8, soft_expiry_us=1)
    assert client.get_entry("q").refresh is RefreshState.TRIGGERED


@pytest.mark.usefixtures("suppression_outlasts_the_test")
def test_an_invalidation_triggers_at_once_during_the_backoff(client: CacheClient, control: redis.Redis) -> None:
    world = plant_stale(control, client.key("q"))
    world.fail(world.acquire(number=10).token)
    assert client.get_entry("q").refresh is RefreshState.TRIGGERED
    assert client.flush(MAX_WAIT_SECONDS)
    assert world.state() == "cooling"
    assert client.get_entry("q").refresh is RefreshState.SUPPRESSED
    world.invalidate()
    assert client.get_entry("q").refresh is RefreshState.TRIGGERED
    assert client.flush(MAX_WAIT_SECONDS)
    assert world.state() == "queued"
