"""The reader's suite once more, its entries spread over the nodes of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from api_client.transport.redis_py import connect
from refresher.embedded import RedisServer
from tests.integration.reader.conftest import *  # noqa: F403
from tests.integration.reader.conftest import MakeReader
from tests.integration.reader.test_batches import *  # noqa: F403
from tests.integration.reader.test_changes import *  # noqa: F403
from tests.integration.reader.test_freshness import *  # noqa: F403
from tests.integration.reader.test_hits import *  # noqa: F403
from tests.integration.reader.test_misses import *  # noqa: F403
from tests.servers.redis_cluster import Cluster
from tests.support.any_reader import AnyReader
from tests.support.waiting import MAX_WAIT_SECONDS

NAMESPACE = "test"


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Cluster:
    return shared_cluster


@pytest.fixture
def settings(cluster: Cluster, clean_redis: RedisServer) -> dict[str, Any]:
    return {
        "redis_url": cluster.url(),
        "broker_url": clean_redis.url(1),
        "namespace": NAMESPACE,
        "redis_timeout_seconds": 5.0,
        "wait_timeout_ms": MAX_WAIT_SECONDS * 1000,
    }


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def control(cluster: Cluster) -> Iterator[redis.Redis]:
    with connect(cluster.url(), timeout_seconds=MAX_WAIT_SECONDS) as client:
        client.flushall()
        client.script_flush()
        yield client


@pytest.fixture
def place() -> str:
    """Where entries are; a cluster's are not kept in the process."""
    return "redis"


@pytest.fixture
def reader(make_reader: MakeReader) -> AnyReader:
    return make_reader()


@pytest.fixture
def sent(cluster: Cluster) -> Callable[[str], int]:
    """How often all nodes were sent a command since the test began."""
    for node in cluster.nodes:
        cluster.ask(node, "CONFIG", "RESETSTAT")

    def calls(name: str) -> int:
        total = 0
        for node in cluster.nodes:
            with cluster.client(node) as client:
                total += client.info("commandstats").get(f"cmdstat_{name}", {"calls": 0})["calls"]
        return total

    return calls


test_the_tier_answers_what_it_has = None  # there is none
