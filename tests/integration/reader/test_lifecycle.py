"""A reader's own life: made from the environment, flushed, closed, used once more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partialmethod
from typing import Any

import pytest
import redis

from api_client import (
    AsyncCacheClient,
    CacheClient,
    CacheUnavailable,
    ConfigurationError,
    Entry,
    ReaderEvents,
    ReaderSettings,
    WaitTimeout,
)
from api_client.client_base import ClientBase
from api_client.trigger.publisher import Publisher
from refresher.embedded import RedisServer
from refresher.settings import WorkerSettings
from tests.integration.reader.conftest import MakeReader, NewKey, connections
from tests.support.any_reader import AnyReader, client_of, close_client
from tests.support.event_recorder import EventRecorder
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

CLASSES: dict[str, type[ClientBase]] = {"sync": CacheClient, "async": AsyncCacheClient}


@pytest.fixture
def environment(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CACHE_REDIS_URL", settings["redis_url"])
    monkeypatch.setenv("CACHE_BROKER_URL", settings["broker_url"])
    monkeypatch.setenv("CACHE_NAMESPACE", settings["namespace"])
    monkeypatch.setenv("CACHE_REDIS_TIMEOUT", f"{MAX_WAIT_SECONDS}s")


def run_in(client: ClientBase, read: Callable[[Any], Any]) -> Any:
    """Read within the client's context, as its kind does that; it is closed then."""
    if isinstance(client, CacheClient):
        with client as entered:
            return read(entered)

    async def within() -> Any:
        assert isinstance(client, AsyncCacheClient)
        async with client as entered:
            return await read(entered)

    return asyncio.run(within())


def test_a_client_is_made_from_the_environment_and_closed_by_its_context(
    kind: str, environment: None, new_key: NewKey, control: redis.Redis
) -> None:
    new_key().store_value("v")
    before = connections(control)
    for make in (CLASSES[kind], CLASSES[kind].from_env):
        client = make()
        assert run_in(client, lambda entered: entered.get("q")) == "v"
        assert client.settings.redis_timeout_seconds == MAX_WAIT_SECONDS
    eventually(lambda: connections(control) <= before, "its connections are closed")


@pytest.mark.parametrize("given", ["redis://:c4nary@h/0", {"redis_url": "redis://:c4nary@h/0"}, WorkerSettings()])
def test_a_client_accepts_only_reader_settings(kind: str, given: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=r"expected a ReaderSettings, .* ReaderSettings\(redis_url=…\)"
    ) as caught:
        CLASSES[kind](given)
    assert "c4nary" not in str(caught.value)


def test_nothing_is_connected_before_the_first_call(kind: str, settings: dict[str, Any], control: redis.Redis) -> None:
    before = connections(control)
    client = CLASSES[kind](ReaderSettings(**settings), events=ReaderEvents())
    assert client.key("q").query == "q"
    assert connections(control) <= before


def test_flush_waits_for_background_triggers(reader: AnyReader, new_key: NewKey) -> None:
    assert reader.flush(0)  # nothing is under way
    keys = [new_key("q", {"n": number}) for number in range(20)]
    for number, key in enumerate(keys):
        key.store_value("old", age_seconds=20, ttl_seconds=10)
        reader.get("q", {"n": number})
    assert reader.flush(MAX_WAIT_SECONDS)
    assert [key.state() for key in keys] == ["queued"] * 20


def test_closing_publishes_pending_triggers(
    reader: AnyReader, new_key: NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Publisher, "close", partialmethod(Publisher.close, MAX_WAIT_SECONDS))  # its own is a second
    keys = [new_key("q", {"n": number}) for number in range(5)]
    for number, key in enumerate(keys):
        key.store_value("old", age_seconds=20, ttl_seconds=10)
        reader.get("q", {"n": number})
    close_client(reader)
    assert [key.state() for key in keys] == ["queued"] * 5


def test_a_closed_reader_still_reads_and_triggers_nothing(
    reader: AnyReader, new_key: NewKey, events: EventRecorder, control: redis.Redis
) -> None:
    fresh, stale = new_key("fresh"), new_key("stale")
    fresh.store_value("v")
    stale.store_value("old", age_seconds=20, ttl_seconds=10)
    close_client(reader)
    close_client(reader)
    assert reader.get("fresh", {}) == "v"
    assert reader.get("stale", {}) == "old"
    with pytest.raises(CacheUnavailable, match="the client is closed"):
        reader.get("cold", {}, timeout=600)
    assert reader.get("cold", {}, timeout=600, default="none") == "none"
    hit, missed = reader.get_many([("fresh", {}), ("cold", {})], timeout=600)
    assert isinstance(hit, Entry)
    assert "the client is closed" in str(missed)
    with pytest.raises(CacheUnavailable, match="the client is closed"):
        reader.refresh("fresh", {}, wait=True, timeout=600)
    assert events["triggered"] == []
    assert control.keys("test:l1:*") == []  # no claim is left behind
    close_client(reader)


class Raising(ReaderEvents):
    def hit(self, query: str, **_: Any) -> None:
        raise ValueError("broken")

    def miss(self, query: str) -> None:
        raise ValueError("broken")


@pytest.mark.parametrize("events", [Raising()], ids=[""])
def test_an_event_hook_that_raises_fails_no_read(reader: AnyReader, new_key: NewKey, pool: ThreadPoolExecutor) -> None:
    key = new_key()
    read = pool.submit(reader.get, "q", {})
    key.load("v")
    assert read.result(MAX_WAIT_SECONDS) == "v"
    assert reader.get("q", {}) == "v"


def test_key_returns_the_key_of_the_entry(make_reader: MakeReader, new_key: NewKey) -> None:
    reader = make_reader()
    assert reader.key("q", {"n": 1}, version=2) == new_key("q", {"n": 1}, version=2).key
    assert client_of(reader).key("q") == new_key().key


def test_clients_of_different_namespaces_on_one_server_share_no_entries(
    make_reader: MakeReader, clean_redis: RedisServer, new_key: NewKey
) -> None:
    new_key().store_value("v")
    reader, other = make_reader(), make_reader(namespace="other")
    assert reader.get("q", {}) == "v"
    with pytest.raises(WaitTimeout):
        other.get("q", {}, timeout=0)
