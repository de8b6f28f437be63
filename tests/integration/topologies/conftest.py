"""Readers on more than one Redis: behind Sentinels, or a cluster; and keys whose worker the test plays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, TypeAlias

import pytest
import redis

from api_client import CacheUnavailable, ReaderEvents, ReaderSettings
from api_client.protocol.keys import make_key
from api_client.transport import cluster as routing
from api_client.transport.redis_py import connect
from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer
from tests.servers.redis_cluster import Cluster
from tests.servers.redis_sentinels import Sentinels
from tests.support.any_reader import KINDS, AnyReader, client_of
from tests.support.fake_worker import WorkedKey
from tests.support.internals import link_of
from tests.support.waiting import MAX_WAIT_SECONDS

NAMESPACE = "test"
TIMEOUT_SECONDS = 20.0  # a busy machine does not reach it
WITH_REPLICAS_SECONDS = 6.0  # half of it is waited for a replica that a key does not have

KEYS = range(30)

MakeReader: TypeAlias = Callable[..., AnyReader]
NewKey: TypeAlias = Callable[[int], WorkedKey]


@pytest.fixture(autouse=True)
def publishers(patient_publishers: None) -> None:
    """Readers publish patiently."""


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


@pytest.fixture
def sentinels(stack: ExitStack) -> Sentinels:
    """A master, a replica and one Sentinel."""
    return Sentinels(stack)


@pytest.fixture
def make_reader(stack: ExitStack, clean_redis: RedisServer, kind: str) -> MakeReader:
    """Make a reader of a URL; settings by their names."""

    def make(url: str, kind: str = kind, **settings: Any) -> AnyReader:
        defaults = {"broker_url": clean_redis.url(1), "namespace": NAMESPACE, "redis_timeout_seconds": TIMEOUT_SECONDS}
        reader = KINDS[kind](ReaderSettings(redis_url=url, **(defaults | settings)), ReaderEvents())
        stack.callback(reader.close)
        return reader

    return make


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[Cluster]:
    """A cluster for tests that leave it as it was."""
    with ExitStack() as opened:
        yield Cluster(opened)


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Cluster:
    """The same, emptied."""
    shared_cluster.empty()
    return shared_cluster


@pytest.fixture
def new_key(cluster: Cluster, stack: ExitStack) -> NewKey:
    """Name a key of the cluster whose worker the test is."""
    return play_on(cluster, stack)


def play_on(cluster: Cluster, stack: ExitStack) -> NewKey:
    """Return the same as `new_key`, on any cluster."""
    control = stack.enter_context(connect(cluster.url(), timeout_seconds=MAX_WAIT_SECONDS))
    return lambda n: WorkedKey(control, LeaseStore(control), make_key(NAMESPACE, "q", {"n": n}, 1))


def routes_of(reader: AnyReader) -> routing.Cluster:
    """What a reader of a cluster knows of its nodes."""
    routes = link_of(client_of(reader)).routes
    assert isinstance(routes, routing.Cluster)
    return routes


def done(call: Callable[[], Any]) -> Any:
    """Return what a call returns; None while Redis can't be reached."""
    try:
        return call()
    except (CacheUnavailable, redis.ConnectionError, redis.TimeoutError):
        return None
