"""Batches of messages on real brokers: one round trip, and the cost of each fault."""

from __future__ import annotations

import os
import signal

import pytest
import redis

from api_client.config.broker import miss_queue, refresh_queue
from api_client.protocol.messages import RefreshItem
from api_client.trigger.broker import TIMEOUT_SECONDS, CeleryBroker
from refresher.embedded import RedisServer, free_port
from tests.support.timing import Measured
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("patient_publishers")
NAMESPACE = "cache"


def items(count: int) -> list[list[RefreshItem]]:
    return [[RefreshItem(query="q", params=f'{{"n":{n}}}')] for n in range(count)]


def test_a_broker_that_refuses_connections_is_tried_once_per_batch() -> None:
    broker = CeleryBroker(f"redis://127.0.0.1:{free_port()}/1", NAMESPACE)
    errors = broker.publish_each(items(64), has_waiter=False)
    assert len(errors) == 64
    assert None not in errors
    assert len(set(map(id, errors))) == 1
    broker.close()


@pytest.mark.alone
def test_a_silent_broker_costs_a_batch_one_timeout(own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api_client.trigger.broker.TIMEOUT_SECONDS", TIMEOUT_SECONDS)
    broker = CeleryBroker(own_redis.url(1), NAMESPACE)
    eventually(lambda: broker.publish_each(items(2), has_waiter=False) == [None, None], "it is published")
    os.kill(own_redis.pid, signal.SIGSTOP)
    try:
        with Measured() as took:
            errors = broker.publish_each(items(64), has_waiter=False)
        assert len(set(map(id, errors))) == 1
        assert type(errors[0]).__name__ == "BatchPublishError", "the batch's own: none was tried alone after it"
        took.at_most(4 * TIMEOUT_SECONDS)  # for each message alone it would be 64 of them
    finally:
        os.kill(own_redis.pid, signal.SIGCONT)
    eventually(lambda: None in broker.publish_each(items(2), has_waiter=False), "it is published again")
    broker.close()


def test_a_broker_that_replies_with_errors_is_tried_for_each_message(clean_redis: RedisServer) -> None:
    broker = CeleryBroker(clean_redis.url(1), NAMESPACE)
    with redis.Redis.from_url(clean_redis.url(1)) as control:
        control.set(refresh_queue(NAMESPACE), "no list")
        errors = broker.publish_each(items(3), has_waiter=False)
        assert ["WRONGTYPE" in str(error) for error in errors] == [True] * 3
        assert len(set(map(id, errors))) == 3
        assert broker.publish_each(items(3), has_waiter=True) == [None] * 3
        assert control.llen(miss_queue(NAMESPACE)) == 3
    broker.close()


def test_querying_the_queue_length_reuses_the_connection(clean_redis: RedisServer) -> None:
    broker = CeleryBroker(clean_redis.url(1), NAMESPACE)
    assert broker.waiting() == 0
    broker.publish_each(items(3), has_waiter=False)
    with redis.Redis.from_url(clean_redis.url(1)) as control:
        before = control.info("stats")["total_connections_received"]
        assert [broker.waiting() for _ in range(5)] == [3] * 5
        assert control.info("stats")["total_connections_received"] == before
    broker.close()
