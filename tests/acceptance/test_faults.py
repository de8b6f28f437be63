"""Readers and workers without a broker, without Redis, and with loads longer than a lease: beside `worker_faults`."""

from __future__ import annotations

import re
from contextlib import ExitStack

import pytest

from api_client import (
    CacheUnavailable,
    EntryState,
    RefreshState,
    TriggerFailed,
)
from refresher.embedded import RedisServer, free_port
from tests.acceptance.conftest import System
from tests.acceptance.test_main_job import Counted, stale_entry
from tests.support.any_reader import KINDS, timeout_of_unpublished
from tests.support.timing import Measured
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

QUEUE_TTL_SECONDS = 60
LEASE = {"STAMPEDE_LOCK_TIMEOUT_MS": "600", "STAMPEDE_JITTER_MAX_MS": "0"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_killed_between_claim_and_publish_delays_a_waiting_one_by_a_second(
    system_with_worker: System, kind: str
) -> None:
    from api_client.protocol import lease
    from api_client.transport.scripts import LeaseStore

    client = system_with_worker.reader(kind)
    key = client.key("long_lived", {"key": kind})
    claim = lease.claim(key, claim_id="dead", seen_token=0, queue_ttl_seconds=QUEUE_TTL_SECONDS, retention_seconds=60)
    LeaseStore(system_with_worker.cache).run(claim)  # and its claimer is gone: nothing was published
    with Measured() as took:
        assert client.get("long_lived", {"key": kind}, timeout=QUEUE_TTL_SECONDS / 2)["load"] == 1
    assert took.seconds > 0.9
    took.at_most(1.0)  # republished after a second, not after the queue's 60


@pytest.mark.parametrize("kind", KINDS)
def test_with_a_dead_broker_hits_are_served_and_no_claim_is_left(system: System, kind: str) -> None:
    events = Counted()
    worker = system.start_worker()
    healthy = system.client()
    stale_entry(healthy, {"key": "a"})
    worker.kill()
    client = system.reader(kind, events, CACHE_BROKER_URL=f"redis://127.0.0.1:{free_port()}/0")
    entry = client.get_entry("short_lived", {"key": "a"})
    assert (entry.state, entry.refresh) == (EntryState.STALE, RefreshState.TRIGGERED)
    assert client.flush(MAX_WAIT_SECONDS)
    assert events.failed == ["OperationalError"]
    assert system.record(client.key("short_lived", {"key": "a"})) == {}  # the next one may claim at once
    timeout = timeout_of_unpublished(client, "long_lived", {"key": "cold"})
    assert re.search(r"'long_lived' .* could not be published: the broker \(CACHE", str(timeout))
    with pytest.raises(TriggerFailed, match="could not be published"):
        client.refresh("long_lived", {"key": "cold"})


@pytest.mark.parametrize("kind", KINDS)
def test_without_redis_a_read_fails_or_returns_the_default_and_recovers_by_itself(system: System, kind: str) -> None:
    system.start_worker()
    client = system.reader(kind)
    client.get("long_lived", {"key": "a"})
    server = system.redis_server
    system.cache.save()
    server.kill()
    with pytest.raises(CacheUnavailable):
        client.get("long_lived", {"key": "a"})
    assert client.get("long_lived", {"key": "a"}, default="fallback") == "fallback"
    for _ in range(10):  # the breaker opens: answers come without a connection being tried
        assert client.get("long_lived", {"key": "a"}, default=None) is None
    server.restart(keep_data=True)
    eventually(lambda: client.get("long_lived", {"key": "a"}, default=None), "the reader is back by itself")


def test_a_refresh_that_has_lost_its_broker_still_commits(system: System, stack: ExitStack) -> None:
    broker = stack.enter_context(RedisServer.start())
    at = {"CACHE_BROKER_URL": broker.url(0)}
    worker = system.start_worker(**at)
    client = system.client(**at)
    params = {"key": "a", "hold": "gate"}
    client.refresh("long_lived", params)
    eventually(lambda: system.loads("a") == 1, "the refresh has begun")
    broker.kill()
    eventually(lambda: "Trying again in" in worker.tail_of_log(10_000), "the worker has noticed")
    system.open_gate("gate")
    assert client.get("long_lived", params)["load"] == 1
    broker.restart(keep_data=False)
    eventually(lambda: client.get("long_lived", {"key": "next"}, timeout=2, default=None), "the worker consumes again")
    assert worker.poll() is None


def test_a_load_longer_than_the_minimum_lease_keeps_its_lease_and_commits(system: System) -> None:
    system.start_worker(**LEASE)
    client = system.client()
    params = {"key": "a", "hold": "gate"}
    key = client.key("long_lived", params)

    def goes_on_for(duration_seconds: float) -> bool:
        claimed_at_us = int(system.record(key).get("claimed_at", 0))
        client.get_entry("long_lived", params) if system.loads("a") > 1 else None
        return bool(claimed_at_us) and system.now_us() > claimed_at_us + duration_seconds * 1e6

    client.refresh("long_lived", params)
    for number in (1, 2, 3):
        eventually(lambda: system.loads("a") == number, "the load has begun")  # noqa: B023
        eventually(lambda: goes_on_for(1.5), "it takes longer than the lease of 0.6 s")
        assert system.loads("a") == number  # reads meanwhile have triggered no other load
        system.open_gate("gate")
        eventually(lambda: client.get("long_lived", params, timeout=5)["load"] == number, "it has committed")  # noqa: B023
        client.invalidate("long_lived", params)
        client.get("long_lived", params)
