"""The consumer between a graph's notes and a cache: it ends or is paused between any two of its steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from api_client import EntryState, get_cached
from api_client.protocol.keys import make_key
from refresher.embedded import RedisServer
from refresher.feed.changes import Changes, ChangeSource
from refresher.feed.consumer import IDLE_SECONDS, LEASE_KEY, WAITING_SECONDS, Consumer, Invalidated
from refresher.feed.errors import FeedError
from refresher.settings import WorkerSettings
from refresher.testing import InlineCache
from refresher.worker.redis_link import RetryingLink
from tests.support.waiting import MAX_WAIT_SECONDS, eventually
from tests.support.watched_graph import WatchedGraph, with_id_of


class Feed:
    """A graph of one person, a query for it, and consumers."""

    def __init__(self, graph: WatchedGraph, cache: InlineCache, link: RetryingLink, settings: WorkerSettings) -> None:
        self.graph, self.cache, self._link, self._settings = graph, cache, link, settings
        cache.answer("person", self._loaded, ttl="1h", grace="1h", tags=["Person:id=1", "Person:*"])
        graph.run("CREATE (:Person {id: 1, n: 0})")
        graph.taken()

    def _loaded(self) -> list[dict[str, Any]]:
        return self.graph.run("MATCH (p:Person) RETURN p.n AS n")

    def write(self) -> None:
        self.graph.run("MATCH (p:Person) SET p.n = p.n + 1")

    def consumer(self, source: ChangeSource | None = None, **options: Any) -> Consumer:
        return Consumer(source or self.graph.outbox, self._link.store, self._settings, **options)

    def let_the_lease_run_out(self) -> None:
        self._link.client.delete(make_key(self._settings.namespace, LEASE_KEY, None, 1).record)

    def state(self) -> EntryState:
        return self.cache.client.get_entry("person").state

    def is_at_rest(self) -> bool:
        """No note is left, and what is served as fresh is what the graph has."""
        value = get_cached("person")
        return self.graph.triggers.backlog().notes == 0 and value == self._loaded()


@pytest.fixture
def feed(watched_graph: WatchedGraph, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Feed]:
    monkeypatch.setattr("refresher.feed.consumer.LEASE_SECONDS", 3 * MAX_WAIT_SECONDS)  # until a test ends it
    with InlineCache(redis_url=redis_server.url()) as cache, closing(RetryingLink(redis_server.url())) as link:
        namespace = cache.client.key("person", {}).namespace
        yield Feed(watched_graph, cache, link, WorkerSettings(redis_url=redis_server.url(), namespace=namespace))


def test_a_change_makes_the_entry_stale(feed: Feed) -> None:
    get_cached("person")
    consumer = feed.consumer()
    assert consumer.step() == IDLE_SECONDS
    feed.write()
    assert feed.state() is EntryState.FRESH
    assert consumer.step() == 0
    assert feed.state() is EntryState.STALE
    get_cached("person")
    assert feed.is_at_rest()


def test_a_consumer_whose_trigger_is_gone_fails_rather_than_wait_for_what_never_comes(feed: Feed) -> None:
    consumer = feed.consumer()
    feed.graph.triggers.uninstall()
    with pytest.raises(FeedError, match="the trigger is not installed: refresher feed install"):
        consumer.step()


def test_of_two_consumers_one_works_until_it_gives_up_or_its_lease_runs_out(feed: Feed) -> None:
    first, second, third = feed.consumer(), feed.consumer(), feed.consumer()
    feed.write()
    assert (first.step(), second.step(), first.step()) == (0, WAITING_SECONDS, IDLE_SECONDS)
    first.close()
    assert second.step() == IDLE_SECONDS
    feed.let_the_lease_run_out()
    assert third.step() == IDLE_SECONDS


def test_how_long_after_its_commit_each_transaction_was_invalidated(feed: Feed) -> None:
    get_cached("person")
    written_at = time.monotonic()
    feed.write()
    feed.write()
    eventually(lambda: feed.graph.triggers.backlog().oldest_seconds >= 0.2, "the first change is 0.2 s old")
    found: list[Invalidated] = []
    feed.consumer(on_invalidated=found.append).step()
    (done,) = found
    assert (len(done.changes.positions), done.by_query.total()) == (2, 1)
    assert 0.2 <= max(done.staleness_seconds) <= time.monotonic() - written_at + 0.01
    assert len(done.staleness_seconds) == 2


class Dead(Exception):
    """A consumer ends here."""


class Dying:
    """A source whose consumer ends at a step."""

    def __init__(self, source: ChangeSource, step: str) -> None:
        self._source, self._step = source, step

    def take(self) -> Changes:
        changes = self._source.take()
        if self._step == "taken":
            raise Dead
        return changes

    def acknowledge(self, changes: Changes) -> None:
        if self._step == "invalidated":
            raise Dead
        self._source.acknowledge(changes)
        raise Dead


@pytest.mark.parametrize("step", ["taken", "invalidated", "acknowledged"])
def test_a_consumer_that_ends_after_a_step_loses_nothing(step: str, feed: Feed) -> None:
    get_cached("person")
    feed.write()
    with pytest.raises(Dead):
        feed.consumer(Dying(feed.graph.outbox, step)).step()
    feed.let_the_lease_run_out()
    feed.consumer().step()
    assert feed.state() is EntryState.STALE
    get_cached("person")
    assert feed.is_at_rest()


class Paused:
    """A source whose consumer is paused at a step; meanwhile the graph gives the id of its note to a later one."""

    def __init__(self, source: ChangeSource, step: str) -> None:
        self._source, self._step = source, step
        self.later: Changes | None = None
        self.is_paused, self.goes_on = threading.Event(), threading.Event()

    def take(self) -> Changes:
        changes = self._source.take()
        self._pause("taken")
        return changes

    def acknowledge(self, changes: Changes) -> None:
        self._pause("invalidated")
        assert self.later is not None
        self._source.acknowledge(with_id_of(changes, self.later))

    def _pause(self, step: str) -> None:
        if step == self._step:
            self.is_paused.set()
            assert self.goes_on.wait(MAX_WAIT_SECONDS)


@pytest.mark.parametrize("step", ["taken", "invalidated"])
def test_a_consumer_that_wakes_after_it_was_overtaken_does_no_harm(step: str, feed: Feed) -> None:
    get_cached("person")
    feed.write()
    source = Paused(feed.graph.outbox, step)
    paused = feed.consumer(source)
    thread = threading.Thread(target=paused.step)
    thread.start()
    assert source.is_paused.wait(MAX_WAIT_SECONDS)
    feed.let_the_lease_run_out()
    other = feed.consumer()
    assert other.step() == 0
    feed.write()
    source.later = feed.graph.outbox.take()
    while feed.state() is not EntryState.FRESH:
        get_cached("person")
    source.goes_on.set()
    thread.join(MAX_WAIT_SECONDS)
    assert feed.graph.triggers.backlog().notes == 1, "nobody has taken it"
    while other.step():
        feed.let_the_lease_run_out()
    assert feed.state() is EntryState.STALE
    get_cached("person")
    assert feed.is_at_rest()
