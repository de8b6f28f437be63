"""Unreadable entries: to a reader each is a miss, counted each time, logged once, and overwritten by a commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from api_client import EntryState, ReaderEvents, ReaderSettings, WaitTimeout
from api_client.protocol.entry import encode
from api_client.protocol.lease import AcquireStatus
from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer
from tests.support.any_reader import KINDS, AnyReader
from tests.support.lease_world import PAYLOAD, World, a_header, commit_call
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

pytestmark = pytest.mark.usefixtures("patient_publishers")


class Counted(ReaderEvents):
    def __init__(self) -> None:
        self.unreadable: list[str] = []
        self.misses = 0

    def unreadable_entry(self, query: str, *, reason: str) -> None:
        self.unreadable.append(reason)

    def miss(self, query: str) -> None:
        self.misses += 1


BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "version": lambda raw: raw[:2] + b"\x02" + raw[3:],
    "flags": lambda raw: raw[:3] + b"\x80" + raw[4:],
    "digest": lambda raw: raw[:8] + bytes(12) + raw[20:],
    "garbage": lambda raw: raw[:60],
}


@pytest.fixture
def events() -> Counted:
    return Counted()


@pytest.fixture(params=KINDS)
def reader(redis_server: RedisServer, events: Counted, request: pytest.FixtureRequest) -> Iterator[AnyReader]:
    settings = ReaderSettings(
        redis_url=redis_server.url(0),
        broker_url=redis_server.url(1),
        namespace="test",
        redis_timeout_seconds=MAX_WAIT_SECONDS,
    )
    reader = KINDS[request.param](settings, events)
    yield reader
    reader.close()


@pytest.fixture
def worked_key(reader: AnyReader, client: redis.Redis, request: pytest.FixtureRequest) -> World:
    """The world of the key that ``reader`` reads; the test plays the worker."""
    key = reader.key("query", {"test": str(hash(request.node.nodeid))})
    client.delete(key.entry, key.record)
    return World(client, LeaseStore(client), key)


def load_as_a_worker_would(world: World, value: bytes = PAYLOAD) -> int:
    """Wait for the claim, acquire and commit; return the entry's token."""
    eventually(lambda: world.state() == "queued", "a claim")
    reply = world.acquire(number=int(world.record()["claim_number"]))
    assert reply.status is AcquireStatus.ACQUIRED
    assert world.store.run(commit_call(world.key, reply.token, b"nonce--1")).accepted
    return reply.token


@pytest.mark.parametrize("reason", BROKEN)
def test_an_unreadable_entry_is_a_miss_that_the_next_commit_overwrites(
    reader: AnyReader, events: Counted, worked_key: World, reason: str
) -> None:
    raw = encode(a_header(worked_key.now_us()), worked_key.key.digest, b"\xa3bad")
    worked_key.client.set(worked_key.key.entry, BROKEN[reason](raw))
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(reader.get_entry, "query", worked_key.key.params, timeout=MAX_WAIT_SECONDS)
        token = load_as_a_worker_would(worked_key)
        entry = read.result(MAX_WAIT_SECONDS)
    assert (entry.value, entry.state, entry.token) == ("value", EntryState.MISS, token)
    assert events.unreadable == [reason]
    assert reader.get_entry("query", worked_key.key.params).state is EntryState.FRESH
    assert (events.unreadable, events.misses) == ([reason], 1)


def test_a_key_of_another_type_is_a_miss_too(reader: AnyReader, events: Counted, worked_key: World) -> None:
    worked_key.client.lpush(worked_key.key.entry, "x")
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(reader.get, "query", worked_key.key.params, timeout=MAX_WAIT_SECONDS)
        load_as_a_worker_would(worked_key)
        assert read.result(MAX_WAIT_SECONDS) == "value"
    assert events.misses == 1


def test_each_unreadable_entry_is_counted_and_logged_once(
    reader: AnyReader, events: Counted, worked_key: World, caplog: pytest.LogCaptureFixture
) -> None:
    worked_key.client.set(worked_key.key.entry, b"garbage")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with pytest.raises(WaitTimeout):
                reader.get("query", worked_key.key.params, timeout=0.02)
    assert events.unreadable == ["garbage"] * 3
    logged = [record.getMessage() for record in caplog.records if "unreadable entry" in record.getMessage()]
    assert len(logged) == 1
    assert worked_key.key.short in logged[0]
