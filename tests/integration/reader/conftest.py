"""A reader of each kind on a real Redis, and keys whose worker the test plays. One suite for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Protocol

import pytest
import redis

from api_client import ReaderSettings
from api_client.protocol.keys import make_key
from api_client.read import wait
from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer
from tests.support.any_reader import KINDS, AnyReader, client_of, local_cache_of, turn_local_cache_on
from tests.support.event_recorder import EventRecorder
from tests.support.fake_worker import WorkedKey
from tests.support.tracked import drop_marker
from tests.support.waiting import MAX_WAIT_SECONDS

NAMESPACE = "test"
NEVER_SECONDS = 3_600.0


class MakeReader(Protocol):
    """Make a reader; settings by their names."""

    def __call__(self, **settings: Any) -> AnyReader: ...


class NewKey(Protocol):
    """Name a key whose worker the test is."""

    def __call__(self, query: str = "q", params: dict[str, Any] | None = None, version: int = 1) -> WorkedKey: ...


@pytest.fixture(autouse=True)
def publishers(patient_publishers: None) -> None:
    """No reader here has a publisher that gives up."""


@pytest.fixture
def events() -> EventRecorder:
    return EventRecorder()


@pytest.fixture
def settings(clean_redis: RedisServer) -> dict[str, Any]:
    """URLs, and timeouts that a busy machine does not reach."""
    return {
        "redis_url": clean_redis.url(0),
        "broker_url": clean_redis.url(1),
        "namespace": NAMESPACE,
        "redis_timeout_seconds": MAX_WAIT_SECONDS,
        "wait_timeout_ms": MAX_WAIT_SECONDS * 1000,
    }


@pytest.fixture
def make_reader(kind: str, stack: ExitStack, settings: dict[str, Any], events: EventRecorder) -> MakeReader:
    def make(**changes: Any) -> AnyReader:
        reader = KINDS[kind](ReaderSettings(**(settings | changes)), events)
        stack.callback(reader.close)
        turn_local_cache_on(reader)
        return reader

    return make


@pytest.fixture
def one_claim_per_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no wait claim again, nor publish again what is queued, because of the time that has passed."""
    monkeypatch.setattr(wait, "RECLAIM_SECONDS", NEVER_SECONDS)


@pytest.fixture
def reader(make_reader: MakeReader) -> AnyReader:
    return make_reader()


@pytest.fixture
def new_key(control: redis.Redis) -> NewKey:
    def named(query: str = "q", params: dict[str, Any] | None = None, version: int = 1) -> WorkedKey:
        return WorkedKey(control, LeaseStore(control), make_key(NAMESPACE, query, params or {}, version))

    return named


def connections(control: redis.Redis) -> set[str]:
    """Return the server's ids of its connections."""
    return {one["id"] for one in control.client_list()}


def wait_until_received(reader: AnyReader, control: redis.Redis) -> None:
    """Wait until the tier, if there is one, has received all invalidations so far: they come in order."""
    if client_of(reader).settings.local_max_entries:
        drop_marker(local_cache_of(reader), control, make_key(NAMESPACE, "marker", None, 1).entry)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Callers: each call of an async reader is a task of its one event loop."""
    with ThreadPoolExecutor(32) as threads:
        yield threads


@pytest.fixture
def sent(control: redis.Redis) -> Callable[[str], int]:
    """Return how often Redis was sent a command (by its name, in lower case) since the test began."""
    control.config_resetstat()
    return lambda name: control.info("commandstats").get(f"cmdstat_{name}", {"calls": 0})["calls"]
