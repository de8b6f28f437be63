"""Readers with an in-process tier: changes by one process reach the others, a fork, and its own next read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from api_client import CacheClient, EntryState, ReaderSettings
from api_client.protocol.keys import make_key
from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer
from tests.support.any_reader import local_cache_of
from tests.support.fake_worker import WorkedKey
from tests.support.processes import run_forked
from tests.support.waiting import MAX_WAIT_SECONDS, eventually


@pytest.fixture
def settings(clean_redis: RedisServer) -> ReaderSettings:
    return ReaderSettings(
        redis_url=clean_redis.url(0), broker_url=clean_redis.url(1), redis_timeout_seconds=5.0,
        local_max_entries=100, local_max_age_seconds=600.0,
    )  # fmt: skip


@pytest.fixture
def client(settings: ReaderSettings) -> Iterator[CacheClient]:
    with CacheClient(settings) as made:
        yield made


@pytest.fixture
def key(clean_redis: RedisServer) -> Iterator[WorkedKey]:
    """A key that has the value "old"."""
    with redis.Redis.from_url(clean_redis.url(0)) as control:
        worked_key = WorkedKey(control, LeaseStore(control), make_key("cache", "q", None, 1))
        worked_key.store_value("old", age_seconds=100)
        yield worked_key


def keeps(client: CacheClient, key: WorkedKey) -> None:
    """Read until the tier, which the first read turns on, has the entry."""
    eventually(lambda: (client.get("q"), key.key.entry in local_cache_of(client).entries)[1], "it is kept")


def test_the_first_read_turns_the_tier_on_and_does_not_wait_for_it(client: CacheClient, key: WorkedKey) -> None:
    assert local_cache_of(client).is_bypassed
    assert client.get("q") == "old"
    keeps(client, key)


@pytest.mark.parametrize("hard", [False, True])
def test_one_client_s_invalidation_reaches_another_s_tier(
    settings: ReaderSettings, client: CacheClient, key: WorkedKey, hard: bool
) -> None:
    keeps(client, key)
    with CacheClient(settings) as other:
        other.invalidate("q", hard=hard)
        assert key.key.entry not in local_cache_of(other).entries
        eventually(lambda: key.key.entry not in local_cache_of(client).entries, "it is dropped")
        if not hard:
            assert client.get_entry("q").state is EntryState.STALE


@pytest.mark.promise("Reading", "The in-process cache is emptied by a commit anywhere")
def test_a_commit_reaches_every_tier(settings: ReaderSettings, client: CacheClient, key: WorkedKey) -> None:
    with CacheClient(settings) as other:
        keeps(client, key)
        keeps(other, key)
        client.refresh("q")
        key.load("new")
        for one in (client, other):
            eventually(lambda one=one: one.get("q") == "new", "the new value is read")


def test_a_child_begins_with_an_empty_tier_and_leaves_the_parent_s_alone(client: CacheClient, key: WorkedKey) -> None:
    keeps(client, key)

    def begin_empty() -> None:
        assert local_cache_of(client).is_bypassed
        assert not local_cache_of(client).entries
        keeps(client, key)
        client.close()

    run_forked(begin_empty)
    assert list(local_cache_of(client).entries) == [key.key.entry]
    key.client.set(key.key.entry, "changed")
    eventually(lambda: key.key.entry not in local_cache_of(client).entries, "the parent is still notified")


def test_after_a_read_that_waited_the_tier_returns_no_older_value(
    client: CacheClient, key: WorkedKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeps(client, key)
    tier, drop_all = local_cache_of(client), local_cache_of(client).drop_all
    listens = "cache-invalidations"  # that thread's turn has not come yet
    monkeypatch.setattr(tier, "drop_all", lambda keys: threading.current_thread().name == listens or drop_all(keys))
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(client.get, "q", fresh=True)
        key.load("new")
        assert waits.result(MAX_WAIT_SECONDS) == "new"
    assert client.get("q") == "new"
