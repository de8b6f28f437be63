"""`explain` of both readers on a real Redis: the entry, the owner of the lease, and what the process suppresses."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import redis

from api_client import ReaderSettings
from api_client.protocol.entry import Smoothed, encode_tags
from api_client.protocol.lease import RecordState
from api_client.protocol.model import EntryState
from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer
from tests.support.any_reader import KINDS, AnyReader
from tests.support.event_recorder import EventRecorder
from tests.support.lease_world import World
from tests.support.waiting import MAX_WAIT_SECONDS

pytestmark = pytest.mark.usefixtures("patient_publishers", "suppression_outlasts_the_test")
PARAMS = {"name": "canary-77aa"}


def reader_of(kind: str, server: RedisServer, **settings: object) -> AnyReader:
    urls = {"redis_url": server.url(0), "broker_url": server.url(1)}
    given = {**urls, "redis_timeout_seconds": MAX_WAIT_SECONDS, **settings}
    return KINDS[kind](ReaderSettings(**given), EventRecorder())  # type: ignore[arg-type]


@pytest.fixture
def reader(kind: str, clean_redis: RedisServer) -> Iterator[AnyReader]:
    made = reader_of(kind, clean_redis)
    yield made
    made.close()


def plant(reader: AnyReader, control: redis.Redis, left_seconds: float, delta_seconds: float = 2.0) -> World:
    world = World(control, LeaseStore(control), reader.key("q", PARAMS))
    now_us = world.now_us()
    world.plant(
        now_us - 900_000_000, soft_expiry_us=now_us + int(left_seconds * 1e6), ttl_seconds=3_600.0, beta=1.0,
        read_started_us=now_us - 900_000_000, fetched_at_us=now_us - 890_000_000, delta=Smoothed(delta_seconds, 0.5),
    )  # fmt: skip
    return world


def test_explain_shows_a_fresh_entry_and_a_missing_one(reader: AnyReader, control: redis.Redis) -> None:
    plant(reader, control, 600.0)
    said = reader.explain("q", PARAMS)
    assert (said.state, said.suppressed_for, said.record) == (EntryState.FRESH, 0.0, None)
    assert said.ttl_remaining == pytest.approx(600, abs=MAX_WAIT_SECONDS)
    assert reader.explain("q", {"name": "another"}).state is EntryState.MISS


def test_explain_shows_a_published_trigger_and_its_suppression(reader: AnyReader, control: redis.Redis) -> None:
    plant(reader, control, -5.0)
    reader.get("q", PARAMS)
    assert reader.flush(MAX_WAIT_SECONDS)
    said = reader.explain("q", PARAMS)
    assert said.record is not None
    assert said.record.state is RecordState.QUEUED
    assert said.record.by.endswith(f":{os.getpid()}")
    assert 0 < said.suppressed_for <= 60  # at most as long as the claim
    assert PARAMS["name"] not in f"{said} {said!r}"


def test_explain_shows_the_queue_length_after_an_early_trigger(reader: AnyReader, control: redis.Redis) -> None:
    plant(reader, control, 600.0, delta_seconds=1e20)  # so that any draw is early
    assert reader.explain("q", PARAMS).queue_length is None
    reader.get("q", PARAMS)
    assert reader.flush(MAX_WAIT_SECONDS)
    said = reader.explain("q", PARAMS)
    # A length counts what was published within a quarter of a second, which a busy machine may take.
    assert said.queue_length in {0, 1}
    assert f"queued   {said.queue_length} background" in str(said)


def test_explain_shows_the_run_that_refused_a_claim_and_how_it_ended(reader: AnyReader, control: redis.Redis) -> None:
    world = plant(reader, control, -5.0)
    token = world.acquire(number=world.claim().number).token
    reader.get("q", PARAMS)
    assert reader.flush(MAX_WAIT_SECONDS)
    said = reader.explain("q", PARAMS)
    assert said.record is not None
    assert said.record.token == token
    world.fail(token)
    said = reader.explain("q", PARAMS)
    assert said.record is not None
    assert (said.record.state, said.record.kind, said.record.attempts) == (RecordState.COOLING, "syntax", 2)
    assert "last refresh failed (syntax); cooling" in str(said)


def test_the_tags_of_a_value_are_shown_on_one_line(reader: AnyReader, control: redis.Redis) -> None:
    world = plant(reader, control, 600.0)
    assert "tags" not in str(reader.explain("q", PARAMS))
    world.plant(world.now_us(), encoded_tags=encode_tags(("person:42", "two\nlines")))
    said = reader.explain("q", PARAMS)
    assert said.tags == ("person:42", "two\nlines")
    assert "  tags     person:42, twolines\n" in str(said)
    world.plant(world.now_us(), encoded_tags=b"\xc1")
    assert reader.explain("q", PARAMS).tags == ()
