"""The feed's state: published by its consumer, and shown by status, explain and a gauge."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
import redis

from api_client.protocol.entry import encode_tags
from api_client.protocol.keys import feed_state_key, make_key
from api_client.protocol.lease import process_identity
from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer, free_port
from refresher.feed.changes import Changes
from refresher.feed.consumer import Consumer
from refresher.feed.errors import FeedError
from refresher.feed.run import consume, opened_triggers
from refresher.feed.state import KEPT_MS, FeedState, read_state
from refresher.feed.watches import watch
from refresher.settings import WorkerSettings
from refresher.worker import app
from refresher.worker.redis_link import RetryingLink
from tests.support.command_line import CommandLine
from tests.support.lease_world import World
from tests.support.waiting import MAX_WAIT_SECONDS

pytestmark = pytest.mark.usefixtures("no_worker_is_waited_for", "patient_commands")
NOTHING = Changes((), (), (), ())
TWO = Changes(("Person", "Person:id=1"), (1, 2), (0.25, 0.75), (), left=1_234)


class Source:
    """A source of changes that a test hands out."""

    def __init__(self) -> None:
        self.next = NOTHING

    def take(self) -> Changes:
        taken, self.next = self.next, NOTHING
        return taken

    def acknowledge(self, changes: Changes) -> None: ...


class Place:
    """A cache, a consumer whose clock stands still until the test moves it, and the commands that show its state."""

    def __init__(self, server: RedisServer, client: redis.Redis, link: RetryingLink) -> None:
        self.client, self.link, self.now, self.source = client, link, 1_000.0, Source()
        self.each_look_seconds = 0.0
        self.while_invalidating: list[FeedState | None] = []
        self.settings = WorkerSettings(redis_url=server.url(0), feed=True)
        self.consumer = Consumer(
            self.source, link.store, self.settings, watched=["Person", "KNOWS"], monotonic=self.monotonic,
            on_invalidated=lambda _: self.while_invalidating.append(read_state(client, "cache")),
        )  # fmt: skip
        env = {"CACHE_REDIS_URL": server.url(0), "CACHE_BROKER_URL": server.url(1)}
        self.status, self.explain = (CommandLine(name, env) for name in ("status", "explain"))

    def monotonic(self) -> float:
        self.now += self.each_look_seconds
        return self.now

    def consume(self, changes: Changes) -> None:
        self.source.next, self.now = changes, self.now + 2
        self.consumer.step()

    def pass_time(self, seconds: float) -> None:
        assert self.client.pexpire(feed_state_key("cache"), KEPT_MS - round(1_000 * seconds))

    def state(self) -> FeedState:
        found = read_state(self.client, "cache")
        assert found is not None
        return found


@pytest.fixture
def place(clean_redis: RedisServer) -> Iterator[Place]:
    url = clean_redis.url(0)
    with redis.Redis.from_url(url) as client, closing(RetryingLink(url)) as link:
        yield Place(clean_redis, client, link)


@pytest.mark.usefixtures("no_consumer_is_gone")
def test_a_consumer_publishes_what_waits_and_how_stale_it_was(place: Place) -> None:
    place.consume(TWO)
    state = place.state()
    assert (state.consumer, state.waiting, state.p50, state.p99) == (process_identity(), 1_234, 0.75, 0.75)
    assert 0.75 <= state.oldest < 0.75 + MAX_WAIT_SECONDS
    place.consumer.step()
    assert place.state().waiting == 1_234, "not more often than each second"
    place.consume(NOTHING)
    assert (place.state().waiting, place.state().p50) == (0, 0.75)
    assert place.state().oldest < MAX_WAIT_SECONDS


@pytest.mark.usefixtures("no_consumer_is_gone")
def test_a_consumer_publishes_while_it_invalidates_what_many_entries_depend_on(place: Place) -> None:
    place.consume(TWO)
    place.each_look_seconds = 2.0
    place.consume(TWO)
    before, state = place.while_invalidating
    assert before is None
    assert state is not None
    assert (state.consumer, state.waiting, state.p99) == (process_identity(), 1_236, 0.75)
    assert state.oldest > 2.75


def test_one_that_publishes_no_longer_does_not_consume_and_the_oldest_change_grows_older(place: Place) -> None:
    place.consume(TWO)
    place.pass_time(60)
    state = place.state()
    assert state.consumer == ""
    assert state.oldest == pytest.approx(60.75, abs=MAX_WAIT_SECONDS)
    gauges = app._gauges(place.settings)  # noqa: SLF001 - it is wired there alone
    ((age_seconds,),) = (values.values() for values in gauges.feed().values())
    assert age_seconds == pytest.approx(60.75, abs=MAX_WAIT_SECONDS)


def test_all_gauges_of_a_worker_share_one_connection(place: Place) -> None:
    gauges = app._gauges(place.settings)  # noqa: SLF001 - it is wired there alone
    before = place.client.info("stats")["total_connections_received"]
    for part, look, _ in gauges.parts():
        if part == "cache":
            look()
    assert place.client.info("stats")["total_connections_received"] == before + 1


def test_that_nobody_can_consume_is_published_too(place: Place) -> None:
    settings = WorkerSettings(neo4j_uri=f"bolt://127.0.0.1:{free_port()}")
    for _ in range(2):
        watch("Person", key="id")
        with opened_triggers(settings) as triggers, pytest.raises(FeedError):
            consume(triggers, place.link.store, place.settings, threading.Event())
        assert place.state().consumer == ""
        place.pass_time(60)
    assert place.state().silent_for >= 60, "since the first time"


@pytest.mark.usefixtures("no_consumer_is_gone")
def test_status_shows_who_consumes_what_waits_and_how_stale_it_was(place: Place) -> None:
    assert place.status.run_json()["feed"] is None
    assert re.search(r"^feed +off *$", place.status.run().stdout, re.MULTILINE)
    place.consume(TWO)
    seen = place.status.run_json()["feed"]
    assert (seen["consumer"], seen["waiting"], seen["p99"]) == (process_identity(), 1_234, 0.75)
    shown = place.status.run().stdout
    assert f"{process_identity()} consumes: 1,234 transactions to take, the oldest of " in shown
    assert "; changes are invalidated 0.75 s after the commit (median), 99 % within 0.75 s" in shown
    place.consume(NOTHING)
    assert "consumes: nothing waits" in place.status.run().stdout


def test_the_consumers_lease_is_no_load_of_a_query(place: Place) -> None:
    place.consume(TWO)
    seen = place.status.run_json()["keys"]
    assert (seen["queries"], seen["runs"]) == ({}, [])


def test_status_shows_that_nobody_consumes(place: Place) -> None:
    place.consume(TWO)
    place.pass_time(600)
    assert "nobody has consumed for 10 min: refresher feed status" in place.status.run().stdout


@pytest.mark.usefixtures("no_consumer_is_gone")
def test_explain_shows_which_of_ttl_and_feed_refreshes_an_entry(place: Place) -> None:
    for number, tags in enumerate((("KNOWS@Person:id=1",), ("Persons", "Person:vip"))):
        world = World(place.client, LeaseStore(place.client), make_key("cache", "q", {"n": number}, 1))
        world.plant(1, soft_expiry_us=world.now_us() + 3_600_000_000, encoded_tags=encode_tags(tags))
    assert "change feed" not in place.explain.run("q", "n=0").stdout
    assert place.explain.run_json("q", "n=0")["refreshed_by"] == "ttl"
    place.consume(NOTHING)
    assert "by the change feed, as soon as what its tags name has changed" in place.explain.run("q", "n=0").stdout
    assert place.explain.run_json("q", "n=0")["refreshed_by"] == "feed"
    assert "it has no tag that the change feed watches" in place.explain.run("q", "n=1").stdout
    place.pass_time(600)
    assert "nobody has consumed the change feed for 10 min" in place.explain.run("q", "n=0").stdout
