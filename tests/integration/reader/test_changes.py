"""Invalidations and manual refreshes."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from api_client import EntryState, InvalidQuery, RefreshFailed, RefreshState, TriggerFailed, WaitTimeout
from api_client.config.broker import miss_queue, refresh_queue
from api_client.protocol.lease import CommitStatus
from refresher.embedded import RedisServer, free_port
from tests.integration.reader.conftest import NAMESPACE, MakeReader, NewKey
from tests.support.any_reader import AnyReader, callers_waiting, timeout_of_unpublished
from tests.support.event_recorder import EventRecorder
from tests.support.waiting import MAX_WAIT_SECONDS, eventually


@pytest.fixture
def broker(clean_redis: RedisServer) -> redis.Redis:
    return redis.Redis.from_url(clean_redis.url(1))


def test_a_soft_invalidation_leaves_a_stale_value(reader: AnyReader, new_key: NewKey) -> None:
    key = new_key()
    token = key.store_value("v")
    done = reader.invalidate("q", {})
    assert (done.generation > token, done.replicated) == (True, None)
    entry = reader.get_entry("q", {})
    assert (entry.value, entry.state, entry.generation) == ("v", EntryState.STALE, done.generation)


def test_a_hard_invalidation_leaves_nothing(reader: AnyReader, new_key: NewKey, pool: ThreadPoolExecutor) -> None:
    key = new_key()
    key.store_value("v")
    generation = reader.invalidate("q", {}, hard=True).generation
    assert key.entry() is None
    read = pool.submit(reader.get_entry, "q", {})
    key.load("new")
    entry = read.result(MAX_WAIT_SECONDS)
    assert (entry.value, entry.state, entry.token > generation) == ("new", EntryState.MISS, True)


def test_a_wait_during_a_soft_invalidation_returns_a_stale_value(
    reader: AnyReader, make_reader: MakeReader, new_key: NewKey, pool: ThreadPoolExecutor
) -> None:
    key = new_key()
    before = [pool.submit(reader.get_entry, "q", {}) for _ in range(3)]
    token = key.begin()
    generation = reader.invalidate("q", {}).generation
    # Later than the invalidation: one that shares the wait under way, one of another process, and batches.
    after = [pool.submit(one.get_entry, "q", {}) for one in (reader, make_reader())]
    batches = [pool.submit(reader.get_many, [("q", {}), ("q", {})]) for _ in range(2)]
    # On an event loop batches share it, too.
    eventually(lambda: callers_waiting(reader) in ([4], [6]), "they wait")
    assert key.end(token, "read before") is CommitStatus.ACCEPTED_AS_STALE
    entries = [read.result(MAX_WAIT_SECONDS) for read in before + after]
    entries += [entry for batch in batches for entry in batch.result(MAX_WAIT_SECONDS)]
    assert len(entries) == 9
    assert {(entry.value, entry.state, entry.generation) for entry in entries} == {
        ("read before", EntryState.STALE, generation)
    }
    assert all(entry.generation > entry.token for entry in entries)


@pytest.mark.parametrize("wrong", [-1, 1.5, "1", True, None, 10**30])
def test_an_invalid_number_of_replicas_is_refused_before_anything_is_sent(
    reader: AnyReader, new_key: NewKey, wrong: Any
) -> None:
    key = new_key()
    key.store_value("v")
    with pytest.raises(InvalidQuery, match=r"replicas=.* of 'q': expected a whole number"):
        reader.invalidate("q", {}, replicas=wrong)
    assert key.state() == "idle"


def test_missing_replicas_are_reported_and_the_invalidation_is_done(
    reader: AnyReader, new_key: NewKey, replica_waits: list[float]
) -> None:
    new_key().store_value("v")
    done = reader.invalidate("q", {}, replicas=1)
    assert replica_waits == [MAX_WAIT_SECONDS / 2], "half of the timeout of Redis"
    assert (done.generation > 0, done.replicated) == (True, False)
    assert reader.get_entry("q", {}).state is EntryState.STALE  # the invalidation is done all the same


def test_a_manual_refresh_is_triggered_once(
    reader: AnyReader, new_key: NewKey, events: EventRecorder, broker: redis.Redis
) -> None:
    key = new_key()
    key.store_value("fresh")
    assert reader.refresh("q", {}) is RefreshState.TRIGGERED
    assert reader.refresh("q", {}) is RefreshState.SUPPRESSED  # queued
    key.begin()
    assert reader.refresh("q", {}) is RefreshState.SUPPRESSED  # running
    assert events.recorded == [("triggered", "manual")]
    with broker:
        assert (broker.llen(refresh_queue(NAMESPACE)), broker.llen(miss_queue(NAMESPACE))) == (1, 0)


@pytest.mark.usefixtures("one_claim_per_wait")
def test_a_manual_refresh_can_be_waited_for(
    reader: AnyReader, new_key: NewKey, pool: ThreadPoolExecutor, broker: redis.Redis
) -> None:
    key = new_key()
    old = key.store_value("old")
    refreshing = pool.submit(reader.refresh, "q", {}, wait=True)
    token = key.load("new")
    assert refreshing.result(MAX_WAIT_SECONDS) is RefreshState.TRIGGERED
    assert reader.get_entry("q", {}).token == token > old
    with broker:
        assert broker.llen(miss_queue(NAMESPACE)) == 1  # its caller waits


def test_a_suppressed_manual_refresh_waits_for_a_load_that_begins_after_it(
    reader: AnyReader, new_key: NewKey, pool: ThreadPoolExecutor
) -> None:
    key = new_key()
    reader.refresh("q", {})
    running = key.begin()
    refreshing = pool.submit(reader.refresh, "q", {}, wait=True)
    eventually(lambda: int(key.record()["number"]) > running, "it has claimed")
    key.end(running, "from before")
    token = key.load("from after")
    assert refreshing.result(MAX_WAIT_SECONDS) is RefreshState.SUPPRESSED
    assert reader.get_entry("q", {}).token == token


def test_a_manual_refresh_ignores_the_backoff_and_a_read_does_not(
    reader: AnyReader, new_key: NewKey, pool: ThreadPoolExecutor
) -> None:
    key = new_key()
    read = pool.submit(reader.get, "q", {})
    key.abandon()
    assert isinstance(read.exception(MAX_WAIT_SECONDS), RefreshFailed)
    with pytest.raises(RefreshFailed):
        reader.get("q", {})
    assert reader.refresh("q", {}) is RefreshState.TRIGGERED
    key.load("v")
    assert reader.get("q", {}) == "v"


def test_waiting_for_a_manual_refresh_raises_the_same_errors_as_a_read(
    reader: AnyReader, new_key: NewKey, pool: ThreadPoolExecutor
) -> None:
    with pytest.raises(WaitTimeout):
        reader.refresh("slow", {}, wait=True, timeout=0)
    refreshing = pool.submit(reader.refresh, "fails", {}, wait=True)
    new_key("fails").abandon(kind="transient", attempts=4)
    error = refreshing.exception(MAX_WAIT_SECONDS)
    assert isinstance(error, RefreshFailed)
    assert (error.kind, error.attempts) == ("transient", 4)


def test_a_refresh_that_cannot_be_published_raises_and_leaves_no_claim(
    make_reader: MakeReader, new_key: NewKey, events: EventRecorder
) -> None:
    reader, key = make_reader(broker_url=f"redis://127.0.0.1:{free_port()}/0"), new_key()
    key.store_value("v")
    for wait in (False, True):
        with pytest.raises(TriggerFailed, match="'q' could not be published") as caught:
            reader.refresh("q", {}, wait=wait)
        assert caught.value.query == "q"
        assert key.record() == {}
    assert events["failed"] == [["OperationalError"]] * 2
    assert reader.get_entry("q", {}).refresh is RefreshState.NONE


def test_a_password_that_the_broker_refuses_is_named_by_its_variable_and_not_shown(
    make_reader: MakeReader, settings: dict[str, Any]
) -> None:
    reader = make_reader(broker_url=settings["broker_url"].replace("//", "//nobody:c4nary@"))
    refused = r"the broker \(CACHE_BROKER_URL\) .*: it refuses this user or password"
    missed = timeout_of_unpublished(reader, "cold", {})
    assert re.search(f"could not be published: {refused}", str(missed))
    with pytest.raises(TriggerFailed, match=f"could not be published: {refused}") as failed:
        reader.refresh("cold", {})
    assert "c4nary" not in f"{missed}{failed.value}"


def test_without_a_broker_a_stale_value_is_served_and_a_miss_names_the_cause(
    make_reader: MakeReader, new_key: NewKey, events: EventRecorder
) -> None:
    reader, key = make_reader(broker_url=f"redis://127.0.0.1:{free_port()}/0"), new_key()
    key.store_value("old", age_seconds=20, ttl_seconds=10)
    entry = reader.get_entry("q", {})
    assert (entry.value, entry.refresh) == ("old", RefreshState.TRIGGERED)
    assert reader.flush(MAX_WAIT_SECONDS)
    assert key.record() == {}
    assert events["failed"] == [["OperationalError"]]
    timeout = timeout_of_unpublished(reader, "cold", {})
    assert re.search(r"published: the broker \(CACHE_BROKER_URL\) .*: Con", str(timeout))
