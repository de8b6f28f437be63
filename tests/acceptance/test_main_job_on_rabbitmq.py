"""The main job with RabbitMQ as the broker: those of its tests that involve the broker, unchanged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from refresher.embedded import RedisServer
from tests.acceptance.conftest import NO_GRAPH, System, system_of_module
from tests.acceptance.test_main_job import (  # noqa: F401 - they use the fixtures below
    test_a_load_that_fails_twice_is_retried_while_the_stale_value_is_served,
    test_a_manual_refresh_can_be_waited_for_and_bypasses_the_backoff,
    test_a_stale_value_is_served_at_once_and_refreshed_after,
    test_concurrent_misses_share_one_wait_and_one_load,
    test_misses_go_before_early_refreshes,
    unused,
)
from tests.servers.rabbitmq_server import RabbitMqServer


@pytest.fixture
def system(system: System, rabbitmq: RabbitMqServer) -> System:
    """The system with RabbitMQ, and queues that nobody has used yet."""
    system.env |= {"CACHE_BROKER_URL": rabbitmq.url, "CACHE_NAMESPACE": f"t{unused()}"}
    return system


@pytest.fixture(scope="module")
def module_worker(
    redis_server: RedisServer, rabbitmq: RabbitMqServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[System]:
    """A system on RabbitMQ with a worker; its loads don't query the graph."""
    with system_of_module(redis_server, NO_GRAPH, tmp_path_factory) as system:
        system.env |= {"CACHE_BROKER_URL": rabbitmq.url, "CACHE_NAMESPACE": f"t{unused()}"}
        system.start_worker("-n", "shared@test")  # others of this RabbitMQ run beside it
        yield system
