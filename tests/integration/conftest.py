"""Fixtures of several test files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from api_client.transport.link import CacheLink
from api_client.trigger import claim_and_publish
from refresher.embedded import RedisServer
from refresher.ops import broker as status_broker
from refresher.testing import InlineCache
from tests.support.any_reader import KINDS
from tests.support.publisher_harness import QUEUE_SIZE, PublisherHarness, ScriptedBroker


@pytest.fixture
def control(clean_redis: RedisServer) -> Iterator[redis.Redis]:
    """A client of the test's own."""
    with redis.Redis.from_url(clean_redis.url(0)) as connected:
        yield connected


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A server of the test's own: to stop, fill or configure, or to have no other clients."""
    with RedisServer.start() as server:
        yield server


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of a reader, for each of `KINDS`."""
    name: str = request.param
    return name


@pytest.fixture
def script() -> ScriptedBroker:
    """The broker of a publisher under test."""
    return ScriptedBroker()


@pytest.fixture
def bench(clean_redis: RedisServer, script: ScriptedBroker) -> Iterator[PublisherHarness]:
    """A publisher to that broker."""
    made = PublisherHarness(clean_redis, script, queue_size=QUEUE_SIZE)
    yield made
    made.close()


@pytest.fixture
def republish_seconds(monkeypatch: pytest.MonkeyPatch) -> int:
    """When a claim's message is due to be published again: so late that no claim of a test is by itself."""
    seconds = 30
    monkeypatch.setattr(claim_and_publish, "REPUBLISH_SECONDS", seconds)
    return seconds


@pytest.fixture
def replica_waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each wait for replicas may take, in seconds. It is cut short: there are none."""
    allowed, run_and_wait = list[float](), CacheLink.run_and_wait

    def short(link: CacheLink, *args: Any, timeout_seconds: float, **options: Any) -> Any:
        allowed.append(timeout_seconds)
        return run_and_wait(link, *args, timeout_seconds=0.01, **options)

    monkeypatch.setattr(CacheLink, "run_and_wait", short)
    return allowed


@pytest.fixture
def cache(redis_server: RedisServer) -> Iterator[InlineCache]:
    """A cache whose refreshes run in the test's process, on a real Redis."""
    with InlineCache(redis_url=redis_server.url()) as entered:
        yield entered


@pytest.fixture
def no_worker_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a status be complete at once: there is no worker."""
    monkeypatch.setattr(status_broker, "ANSWER_SECONDS", 0.05)
