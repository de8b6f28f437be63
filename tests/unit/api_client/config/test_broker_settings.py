"""The queues of each broker, and the return of a retried message to the queue that it came from."""

from __future__ import annotations

import pytest
from kombu.transport.native_delayed_delivery import calculate_routing_key

from api_client.config.broker import consumer_settings, publisher_settings, queue_for, queue_of, queues

REDIS, RABBITMQ = "redis://127.0.0.1:6379/1", "amqp://u:p@127.0.0.1:5672//"


def test_on_redis_queues_are_plain_and_keep_the_names_of_earlier_releases() -> None:
    misses, others = queues("cache", REDIS)
    assert (misses.name, others.name) == ("cache.refresh-miss", "cache.refresh")
    assert (misses.exchange.type, misses.queue_arguments) == ("direct", None)


def test_on_rabbitmq_queues_are_quorum_queues_with_names_of_their_own_and_a_delivery_limit() -> None:
    misses, others = queues("cache", RABBITMQ)
    assert (misses.name, others.name) == ("cache.refresh-miss.quorum", "cache.refresh.quorum")
    for queue in (misses, others):
        assert queue.exchange.type == "topic"
        assert queue.queue_arguments == {"x-queue-type": "quorum", "x-delivery-limit": 3}
        assert "." not in queue.routing_key


@pytest.mark.parametrize("url", [REDIS, RABBITMQ])
@pytest.mark.parametrize("namespace", ["cache", "a.b", "b"])
@pytest.mark.parametrize("has_waiter", [True, False])
def test_a_retried_message_returns_to_its_queue_even_after_delays(url: str, namespace: str, has_waiter: bool) -> None:
    queue = queue_for(namespace, url, has_waiter=has_waiter)
    key = queue.routing_key
    for _ in range(3):
        assert queue_of(namespace, url, key).name == queue.name
        if url is RABBITMQ:
            key = calculate_routing_key(15, key)


def test_a_namespace_that_is_the_end_of_another_shares_no_routing_key_with_it() -> None:
    keys = [queue.routing_key for namespace in ("a.b", "b") for queue in queues(namespace, RABBITMQ)]
    # What RabbitMQ matches after a pause: "#." and the key.
    assert not [(one, other) for one in keys for other in keys if one != other and f".{one}".endswith(f".{other}")]


def test_publisher_and_worker_connections_to_the_broker_have_timeouts() -> None:
    reader = publisher_settings(RABBITMQ, 0.5)["broker_transport_options"]
    assert {name: reader[name] for name in ("connect_timeout", "read_timeout", "write_timeout", "max_retries")} == {
        "connect_timeout": 0.5, "read_timeout": 0.5, "write_timeout": 0.5, "max_retries": 0,
    }  # fmt: skip
    for url in (REDIS, RABBITMQ):
        worker = consumer_settings("cache", url, visibility_timeout_seconds=180)
        assert worker["broker_connection_max_retries"] is None
        assert {"socket_timeout", "read_timeout"} & set(worker["broker_transport_options"])


@pytest.mark.parametrize("url", [REDIS, RABBITMQ])
def test_a_message_is_json_and_acknowledged_when_its_refresh_is_done(url: str) -> None:
    reader, worker = publisher_settings(url, 0.5), consumer_settings("cache", url, visibility_timeout_seconds=180)
    for settings in (reader, worker):
        assert (settings["accept_content"], settings["task_serializer"]) == (["json"], "json")
    assert worker["task_acks_late"]
    assert worker["task_reject_on_worker_lost"]


def test_an_idle_connection_to_redis_is_probed_and_checked() -> None:
    for settings in (publisher_settings(REDIS, 0.5), consumer_settings("cache", REDIS, visibility_timeout_seconds=180)):
        options = settings["broker_transport_options"]
        assert options["socket_keepalive"]
        assert options["health_check_interval"] == 2
