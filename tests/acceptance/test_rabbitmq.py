"""A worker and a broker that are killed, with RabbitMQ as the broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import kombu.pools
import pytest

from tests.acceptance.conftest import System
from tests.acceptance.test_broker_outages import BACK_WITHIN_SECONDS
from tests.servers.rabbitmq_server import RabbitMqServer
from tests.servers.restarts import restart
from tests.support.timing import promptly
from tests.support.waiting import eventually


@pytest.fixture
def no_connection_outlives_it() -> Iterator[None]:
    """Drop the connections that kombu keeps by URL: no other test is to get one to a killed broker."""
    yield
    kombu.pools.reset()


@pytest.fixture
def on_rabbitmq(no_connection_outlives_it: None, system: System, rabbitmq: RabbitMqServer) -> System:
    """The system, with RabbitMQ, and queues that no other test uses."""
    system.env |= {"CACHE_BROKER_URL": rabbitmq.url, "CACHE_NAMESPACE": f"t{uuid.uuid4().hex[:8]}"}
    return system


def test_a_killed_worker_is_replaced_without_waiting_for_redelivery(on_rabbitmq: System) -> None:
    lease = {"STAMPEDE_LOCK_TIMEOUT_MS": "600"}
    worker = on_rabbitmq.start_worker(**lease)
    client = on_rabbitmq.client()
    client.refresh("long_lived", {"key": "a", "hold": "gate"})
    eventually(lambda: on_rabbitmq.loads("a") == 1, "the load has begun")
    worker.kill()
    on_rabbitmq.start_worker(**lease)
    on_rabbitmq.open_gate("gate", times=3)
    assert client.get("long_lived", {"key": "a", "hold": "gate"})["load"] >= 2


def test_worker_and_reader_come_back_after_the_broker_has_restarted(
    on_rabbitmq: System, rabbitmq: RabbitMqServer
) -> None:
    worker = on_rabbitmq.start_worker()
    client = on_rabbitmq.client()
    assert client.get("long_lived", {"key": "before"})["load"] == 1
    eventually(lambda: rabbitmq.knows_on_disk(on_rabbitmq.env["CACHE_NAMESPACE"]), "the queues are on disk")
    rabbitmq.kill()
    try:
        assert client.get("long_lived", {"key": "before"})["load"] == 1  # a hit needs no broker
    finally:
        restart(rabbitmq, keep_data=True)  # it accepts connections again when this returns
    # By a new client, since the pauses of the reader itself have grown meanwhile.
    soon = on_rabbitmq.client()
    promptly(
        lambda: soon.get("long_lived", {"key": "soon"}, timeout=1, default=None),
        "the worker consumes again",
        BACK_WITHIN_SECONDS,
    )
    after = eventually(
        lambda: client.get("long_lived", {"key": "after"}, timeout=2, default=None), "a miss is loaded again"
    )
    assert after["load"] >= 1
    assert worker.poll() is None
