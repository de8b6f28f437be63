"""A reader's own life: made from the environment, flushed, closed, used once more; and what it tells, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
import uvloop

from api_client import (
    AsyncCacheClient,
    CacheClient,
    ConfigurationError,
    ReaderEvents,
    ReaderSettings,
    RefreshFailed,
    TriggerFailed,
    WaitTimeout,
)
from api_client.client import ClientBase
from refresher.embedded import RedisServer
from tests.integration.reader.conftest import MakeReader, Play
from tests.support.any_reader import AnyReader, client_of, close_client
from tests.support.played_worker import PATIENCE_SECONDS
from tests.support.recorded_events import RecordedEvents
from tests.support.waiting import eventually

CLASSES: dict[str, type[ClientBase]] = {"sync": CacheClient, "async": AsyncCacheClient, "uvloop": AsyncCacheClient}


@pytest.fixture
def environment(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CACHE_REDIS_URL", settings["redis_url"])
    monkeypatch.setenv("CACHE_BROKER_URL", settings["broker_url"])
    monkeypatch.setenv("CACHE_NAMESPACE", settings["namespace"])
    monkeypatch.setenv("CACHE_REDIS_TIMEOUT", "5s")


def run_in(kind: str, client: ClientBase, read: Callable[[Any], Any]) -> Any:
    """Read within the client's context, as its kind does that; it is closed then."""
    if isinstance(client, CacheClient):
        with client as entered:
            return read(entered)

    async def within() -> Any:
        assert isinstance(client, AsyncCacheClient)
        async with client as entered:
            return await read(entered)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop if kind == "uvloop" else None) as runner:
        return runner.run(within())


def test_it_is_made_from_the_environment_and_closed_by_its_context(
    kind: str, environment: None, play: Play, control: redis.Redis
) -> None:
    play().plant_value("v")
    before = len(control.client_list())
    for make in (CLASSES[kind], CLASSES[kind].from_env):
        client = make()
        assert run_in(kind, client, lambda entered: entered.get("q")) == "v"
        assert client.settings.redis_timeout_seconds == 5.0
    eventually(lambda: len(control.client_list()) == before, PATIENCE_SECONDS, "its connections are closed")


def test_a_wrong_variable_is_named(kind: str, environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CACHE_NAMESPACE", "no good")
    for make in (CLASSES[kind], CLASSES[kind].from_env):
        with pytest.raises(ConfigurationError, match="CACHE_NAMESPACE"):
            make()


def test_nothing_is_connected_before_the_first_call(kind: str, settings: dict[str, Any], control: redis.Redis) -> None:
    before = len(control.client_list())
    client = CLASSES[kind](ReaderSettings(**settings), events=ReaderEvents())
    assert client.key("q").query == "q"
    assert len(control.client_list()) == before


def test_flushing_waits_for_what_was_asked_in_the_background(reader: AnyReader, play: Play) -> None:
    assert reader.flush(0)  # nothing is under way
    keys = [play("q", {"n": number}) for number in range(20)]
    for number, key in enumerate(keys):
        key.plant_value("old", age_seconds=20, ttl_seconds=10)
        reader.get("q", {"n": number})
    assert reader.flush(PATIENCE_SECONDS)
    assert [key.state() for key in keys] == ["queued"] * 20


def test_closing_publishes_what_is_left(reader: AnyReader, play: Play) -> None:
    keys = [play("q", {"n": number}) for number in range(5)]
    for number, key in enumerate(keys):
        key.plant_value("old", age_seconds=20, ttl_seconds=10)
        reader.get("q", {"n": number})
    close_client(reader)
    assert [key.state() for key in keys] == ["queued"] * 5


def test_a_closed_reader_still_reads_and_asks_for_nothing(
    reader: AnyReader, play: Play, events: RecordedEvents, control: redis.Redis
) -> None:
    fresh, stale = play("fresh"), play("stale")
    fresh.plant_value("v")
    stale.plant_value("old", age_seconds=20, ttl_seconds=10)
    close_client(reader)
    close_client(reader)
    assert reader.get("fresh", {}) == "v"
    assert reader.get("stale", {}) == "old"
    with pytest.raises(WaitTimeout, match="could not be published"):
        reader.get("cold", {}, timeout=0.05)
    with pytest.raises(TriggerFailed, match="closed"):
        reader.refresh("fresh", {})
    assert events["triggered"] == []
    assert control.keys("test:l1:*") == []  # no claim is left behind
    close_client(reader)


def a_busy_life(reader: AnyReader, play: Play, pool: ThreadPoolExecutor) -> None:
    """One call after the other, so that its events have one order."""
    key = play()

    def done(*_: object) -> None:
        assert reader.flush(PATIENCE_SECONDS)

    cold = pool.submit(reader.get, "q", {})
    key.asked()
    done(key.load("1"), cold.result(PATIENCE_SECONDS))
    done(reader.get("q", {}))
    reader.invalidate("q", {})
    done(reader.get("q", {}))
    done(reader.get("q", {}))
    done(key.load("2"), reader.get("q", {}))
    done(reader.refresh("q", {}), reader.refresh("q", {}))
    key.load("3")
    reader.invalidate("q", {}, hard=True)
    failing = pool.submit(reader.get, "q", {})
    key.give_up()
    assert isinstance(failing.exception(PATIENCE_SECONDS), RefreshFailed)
    done(reader.get("q", {}, default=None))
    key.client.set(key.key.entry, b"garbage")
    done(reader.get("q", {}, default=None))
    cooling, early = play("cooling"), play("early")
    cooling.plant_value("old", age_seconds=20, ttl_seconds=10)
    cooling.claim("of another reader")
    cooling.give_up()
    done(reader.get("cooling", {}))
    early.plant_value("v", age_seconds=60, ttl_seconds=100, beta=1e15)
    done(reader.get("early", {}))


def test_all_kinds_tell_the_same_in_the_same_order(
    reader: AnyReader, play: Play, pool: ThreadPoolExecutor, events: RecordedEvents
) -> None:
    a_busy_life(reader, play, pool)
    # Told on two threads: each has its own order.
    assert [told for told in events.told if told[0] in {"hit", "miss", "unreadable", "read failed"}] == [
        ("miss",),
        ("hit", "fresh", ""),
        ("hit", "stale", "triggers"),
        ("hit", "stale", "triggers"),
        ("hit", "fresh", ""),
        ("miss",),
        ("read failed", "refresh_failed"),
        ("miss",),
        ("read failed", "refresh_failed"),
        ("unreadable", "garbage"),
        ("miss",),
        ("read failed", "refresh_failed"),
        ("hit", "stale", "triggers"),
        ("hit", "fresh", "triggers"),
    ]
    assert [told for told in events.told if told[0] in {"triggered", "deduplicated"}] == [
        ("triggered", "miss"),
        ("triggered", "invalidated"),
        ("triggered", "manual"),
        ("triggered", "miss"),
        ("deduplicated", "cooling"),
        ("triggered", "early"),
    ]
    assert len(events.told) == 14 + 6


class Raising(ReaderEvents):
    def hit(self, query: str, **_: Any) -> None:
        raise ValueError("broken")

    def miss(self, query: str) -> None:
        raise ValueError("broken")


@pytest.mark.parametrize("events", [Raising()], ids=[""])
def test_an_event_that_raises_costs_no_read(reader: AnyReader, play: Play, pool: ThreadPoolExecutor) -> None:
    key = play()
    read = pool.submit(reader.get, "q", {})
    key.load("v")
    assert read.result(PATIENCE_SECONDS) == "v"
    assert reader.get("q", {}) == "v"


def test_a_key_is_explained(reader: AnyReader, play: Play) -> None:
    key = play()
    assert "no entry" in str(reader.explain("q", {})).lower()
    key.plant_value("old", age_seconds=20, ttl_seconds=10)
    reader.get("q", {})
    assert reader.flush(PATIENCE_SECONDS)
    told = str(reader.explain("q", {}))
    assert "stale" in told
    assert "queued" in told


def test_its_key_is_that_of_the_entry(make_reader: MakeReader, play: Play) -> None:
    reader = make_reader()
    assert reader.key("q", {"n": 1}, version=2) == play("q", {"n": 1}, version=2).key
    assert client_of(reader).key("q") == play().key


def test_clients_on_one_server_with_other_namespaces_do_not_meet(
    make_reader: MakeReader, clean_redis: RedisServer, play: Play
) -> None:
    play().plant_value("v")
    reader, other = make_reader(), make_reader(namespace="other")
    assert reader.get("q", {}) == "v"
    with pytest.raises(WaitTimeout):
        other.get("q", {}, timeout=0)
