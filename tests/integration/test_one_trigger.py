"""One trigger per key: scripts run on Redis while many threads, or tasks, read a stale value.

A claim is one script; a claim that finds the key queued runs a second one, which checks whether it is due to be
published again. There is no worker, so only the process' own memory suppresses triggers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import redis

from api_client import CacheClient, ReaderEvents, ReaderSettings, RefreshState
from api_client.protocol.keys import CacheKey
from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer
from tests.support.any_reader import KINDS
from tests.support.lease_world import World
from tests.support.waiting import MAX_WAIT_SECONDS

pytestmark = pytest.mark.usefixtures("patient_publishers")
ROOT = Path(__file__).parents[2]
READS, THREADS = 1_000, 8


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
def test_a_thousand_reads_of_a_stale_key_at_once_make_one_claim_per_second(
    kind: str, client: CacheClient, control: redis.Redis
) -> None:
    plant_stale(control, client.key("q"))
    load_scripts(client, control)
    with closing(KINDS[kind](client.settings, ReaderEvents())) as reader, ThreadPoolExecutor(THREADS) as pool:
        began = time.monotonic()
        refreshes = list(pool.map(lambda _: reader.get_entry("q", {}).refresh, range(READS)))
        elapsed_seconds = time.monotonic() - began
        assert reader.flush(MAX_WAIT_SECONDS)
    assert 1 <= scripts_run(control) <= max_scripts(elapsed_seconds)
    assert refreshes.count(RefreshState.TRIGGERED) <= 1 + int(elapsed_seconds)
    assert set(refreshes) == {RefreshState.TRIGGERED, RefreshState.SUPPRESSED}


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
