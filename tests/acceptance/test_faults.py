"""Real faults on real processes: kill -9, SIGSTOP, lost messages, a Redis that goes and comes back."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack

import psutil
import pytest

from api_client import (
    CacheUnavailable,
    EntryState,
    RefreshState,
    TriggerFailed,
    WaitTimeout,
)
from refresher.embedded import RedisServer, free_port
from tests.acceptance.conftest import System
from tests.acceptance.test_main_job import Counted, stale_entry
from tests.support.any_reader import KINDS
from tests.support.waiting import eventually

LEASE = {"STAMPEDE_LOCK_TIMEOUT_MS": "600", "STAMPEDE_JITTER_MAX_MS": "0"}


def test_workers_killed_in_mid_refresh_are_replaced_without_waiting_for_redelivery(system: System) -> None:
    worker = system.start_worker(**LEASE)
    client = system.client()
    params = {"key": "a", "hold": "gate"}
    system.open_gate("gate")
    token = stale_entry(client, params)
    client.get_entry("short_lived", params)
    eventually(lambda: system.loads("a") == 2, 10, "the refresh has begun")
    assert system.record(client.key("short_lived", params))["state"] == "running"
    worker.kill()

    system.start_worker(**LEASE)
    consuming_since = time.monotonic()
    system.open_gate("gate", times=2)  # one for the load that died holding the gate's place

    def refreshed() -> bool:
        entry = client.get_entry("short_lived", params)
        assert entry.value["load"] in {1, 3}
        return bool(entry.token > token)

    # The lease (0.6 s) has run out while the new worker came up; the reader's own silence is a second at most.
    eventually(refreshed, 0.6 + 1 + 1, "a refresh by the new worker")
    assert time.monotonic() - consuming_since < 3
    assert system.loads("a") == 3  # the dead worker's message is still unacknowledged: nobody needed it
    assert system.broker.hlen("unacked") == 1


def test_a_worker_stopped_past_its_lease_cannot_overwrite_the_newer_value(system: System) -> None:
    first = system.start_worker("-c", "1", **LEASE)
    client = system.client()
    params = {"key": "a", "hold": "gate"}
    system.open_gate("gate")
    stale_entry(client, params)
    client.get_entry("short_lived", params)
    eventually(lambda: system.loads("a") == 2, 10, "the refresh has begun")
    family = [psutil.Process(first.pid), *psutil.Process(first.pid).children(recursive=True)]
    for process in family:
        process.suspend()
    try:
        system.start_worker("-c", "1", **LEASE)
        # The stopped one waits at the gate's head: open it for both, the second one's load is the newer.
        eventually(
            lambda: client.get_entry("short_lived", params) and system.loads("a") == 3, 10, "another worker took over"
        )
        system.open_gate("gate", times=2)
        newer = eventually(
            lambda: (entry := client.get_entry("short_lived", params)).value["load"] == 3 and entry, 10, "its value"
        )
    finally:
        for process in reversed(family):
            process.resume()
    eventually(lambda: "rejected" in first.tail_of_log(10_000), 10, "the late write is refused, and says so")
    assert "rejected (lost)" in first.tail_of_log(10_000) or "rejected (superseded)" in first.tail_of_log(10_000)
    after = client.get_entry("short_lived", params)
    assert after.token >= newer.token
    assert after.value["load"] >= 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_killed_between_claim_and_publish_delays_a_waiting_one_by_a_second(system: System, kind: str) -> None:
    from api_client import lease
    from api_client.lease_store import LeaseStore

    system.start_worker()
    client = system.reader(kind)
    key = client.key("long_lived", {"key": "a"})
    claim = lease.claim(key, claim_id="dead", seen_token=0, queue_ttl_seconds=60, retention_seconds=60)
    LeaseStore(system.cache).run(claim)  # and its claimer is gone: nothing was published
    began = time.monotonic()
    assert client.get("long_lived", {"key": "a"}, timeout=10)["load"] == 1
    assert 0.9 < time.monotonic() - began < 3  # republished after a second, not after the queue's 60


def test_a_message_that_is_lost_is_published_again_by_the_readers_of_the_stale_value(system: System) -> None:
    client = system.client()
    worker = system.start_worker()
    token = stale_entry(client, {"key": "a"})
    worker.kill()
    assert client.get_entry("short_lived", {"key": "a"}).refresh is RefreshState.TRIGGERED
    client.flush()
    system.broker.flushdb()
    system.start_worker()
    # After 5 s; the claim itself would hold for 60.
    eventually(lambda: client.get_entry("short_lived", {"key": "a"}).token > token, 20, "a reader published it again")
    assert system.loads("a") == 2


def test_lost_messages_are_asked_for_again_when_the_claim_has_run_out(system: System) -> None:
    client = system.client(CACHE_QUEUE_TTL="500ms")
    worker = system.start_worker()
    token = stale_entry(client, {"key": "a"})
    worker.kill()
    assert client.get_entry("short_lived", {"key": "a"}).refresh is RefreshState.TRIGGERED
    client.flush()
    assert system.broker.llen("cache.refresh") == 1
    system.broker.flushdb()
    system.start_worker()
    eventually(lambda: client.get_entry("short_lived", {"key": "a"}).token > token, 5, "a reader has asked again")


@pytest.mark.parametrize("kind", KINDS)
def test_a_dead_broker_costs_readers_nothing_and_leaves_no_claim(system: System, kind: str) -> None:
    events = Counted()
    worker = system.start_worker()
    healthy = system.client()
    stale_entry(healthy, {"key": "a"})
    worker.kill()
    client = system.reader(kind, events, CELERY_BROKER_URL=f"redis://127.0.0.1:{free_port()}/0")
    entry = client.get_entry("short_lived", {"key": "a"})
    assert (entry.state, entry.refresh) == (EntryState.STALE, RefreshState.TRIGGERED)
    assert client.flush(5)
    assert events.failed == ["OperationalError"]
    assert system.record(client.key("short_lived", {"key": "a"})) == {}  # the next one may claim at once
    with pytest.raises(WaitTimeout, match=r"'long_lived' .* could not be published: OperationalError"):
        client.get("long_lived", {"key": "cold"}, timeout=0.3)
    with pytest.raises(TriggerFailed, match="could not be published"):
        client.refresh("long_lived", {"key": "cold"})


@pytest.mark.parametrize("kind", KINDS)
def test_without_redis_a_read_fails_at_once_or_takes_the_default_and_heals(system: System, kind: str) -> None:
    system.start_worker()
    client = system.reader(kind)
    client.get("long_lived", {"key": "a"}, timeout=20)
    server = system.redis_server
    system.cache.save()
    server.kill()
    with pytest.raises(CacheUnavailable):
        client.get("long_lived", {"key": "a"})
    assert client.get("long_lived", {"key": "a"}, default="fallback") == "fallback"
    for _ in range(10):  # the breaker opens: answers come without a connection being tried
        assert client.get("long_lived", {"key": "a"}, default=None) is None
    server.restart(keep_data=True)
    eventually(lambda: client.get("long_lived", {"key": "a"}, default=None), 10, "the reader is back by itself")


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_whose_redis_restarts_empty_in_mid_refresh_writes_nothing_and_goes_on(
    system: System, kind: str
) -> None:
    worker = system.start_worker()
    client = system.reader(kind)
    params = {"key": "a", "hold": "gate"}
    system.open_gate("gate")
    before = client.get_entry("long_lived", params, timeout=20)
    client.refresh("long_lived", params)
    eventually(lambda: system.loads("a") == 2, 10, "the refresh has begun")
    system.redis_server.kill()
    system.redis_server.restart(keep_data=False)
    system.open_gate("gate")
    eventually(
        lambda: "rejected (lost)" in worker.tail_of_log(10_000), 10, "its record is gone, so its write is refused"
    )
    assert system.cache.exists(client.key("long_lived", params).entry) == 0

    system.open_gate("gate", times=3)
    after = eventually(
        lambda: client.get("long_lived", params, timeout=2, default=None) and client.get_entry("long_lived", params),
        30,
        "a value, loaded by the same worker",
    )
    assert after.token > before.token  # numbers are seeded by time: they do not start over
    assert worker.poll() is None


def test_a_refresh_that_has_lost_its_broker_still_commits(system: System, stack: ExitStack) -> None:
    broker = stack.enter_context(RedisServer.start())
    at = {"CELERY_BROKER_URL": broker.url(0)}
    worker = system.start_worker(**at)
    client = system.client(**at)
    params = {"key": "a", "hold": "gate"}
    client.refresh("long_lived", params)
    eventually(lambda: system.loads("a") == 1, 10, "the refresh has begun")
    broker.kill()
    eventually(lambda: "Trying again in" in worker.tail_of_log(10_000), 20, "the worker has noticed")
    system.open_gate("gate")
    assert client.get("long_lived", params, timeout=10)["load"] == 1
    broker.restart(keep_data=False)
    eventually(
        lambda: client.get("long_lived", {"key": "next"}, timeout=2, default=None), 30, "the worker consumes again"
    )
    assert worker.poll() is None


def test_a_killed_pool_process_gives_its_message_back(system: System) -> None:
    worker = system.start_worker("-c", "1", **LEASE)
    client = system.client()
    client.refresh("long_lived", {"key": "a", "hold": "gate"})
    eventually(lambda: system.loads("a") == 1, 10, "the load has begun")
    (pid,) = system.control.lrange("calls:a", 0, -1)
    os.kill(int(pid), signal.SIGKILL)
    system.open_gate("gate", times=2)
    eventually(
        lambda: client.get("long_lived", {"key": "a", "hold": "gate"}, timeout=1, default=None),
        30,
        "a value all the same",
    )
    assert worker.poll() is None


def test_a_load_longer_than_the_shortest_lease_keeps_it_and_commits_each_time(system: System) -> None:
    system.start_worker(**LEASE)
    client = system.client()
    params = {"key": "a", "hold": "gate"}
    key = client.key("long_lived", params)

    def goes_on_for(duration_seconds: float) -> bool:
        claimed_at_us = int(system.record(key).get("claimed_at", 0))
        client.get_entry("long_lived", params) if system.loads("a") > 1 else None
        return bool(claimed_at_us) and client._link.now_us() > claimed_at_us + duration_seconds * 1e6

    client.refresh("long_lived", params)
    for number in (1, 2, 3):
        eventually(lambda: system.loads("a") == number, 10, "the load has begun")  # noqa: B023
        eventually(lambda: goes_on_for(1.5), 10, "it takes longer than the lease of 0.6 s")
        assert system.loads("a") == number  # whoever read meanwhile was told that it runs
        system.open_gate("gate")
        eventually(lambda: client.get("long_lived", params, timeout=5)["load"] == number, 10, "it has committed")  # noqa: B023
        client.invalidate("long_lived", params)
        client.get("long_lived", params)


def test_a_cold_shutdown_hands_the_refresh_back_to_another_worker(system: System) -> None:
    worker = system.start_worker("-c", "1")
    client = system.client()
    params = {"key": "a", "hold": "gate"}
    client.refresh("long_lived", params)
    eventually(lambda: system.loads("a") == 1, 10, "the load has begun")
    os.kill(worker.pid, signal.SIGQUIT)
    assert worker.wait(20) is not None
    assert system.record(client.key("long_lived", params))["state"] == "queued"
    system.start_worker("-c", "1")
    system.open_gate("gate", times=2)
    assert client.get("long_lived", params, timeout=10)["load"] == 2


def test_a_warm_shutdown_finishes_the_refresh(system: System) -> None:
    worker = system.start_worker("-c", "1")
    client = system.client()
    params = {"key": "a", "hold": "gate"}
    client.refresh("long_lived", params)
    eventually(lambda: system.loads("a") == 1, 10, "the load has begun")
    os.kill(worker.pid, signal.SIGTERM)
    eventually(lambda: "Warm shutdown" in worker.tail_of_log(100), 10, "it has begun to end")
    system.open_gate("gate")
    assert worker.wait(20) is not None
    assert client.get("long_lived", params)["load"] == 1
