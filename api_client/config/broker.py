"""Broker settings of reader and worker, each with its reason: queues and connections, for Redis and RabbitMQ.

A queued message is a hint: when a claim expires, the next reader publishes again, so redelivery is never needed. These
settings therefore aim at quick reconnection and empty queues, not at keeping each message at any price.
"""

from __future__ import annotations

from typing import Any, Final

from api_client.config.broker_url import connection_settings, is_rabbitmq, sentinel_options

# A message of this age has been published again many times (a claim lasts CACHE_QUEUE_TTL, 60 s), or its key is not
# read. Without an expiry, a day without workers leaves a thousand messages per key. The age is measured by two wall
# clocks, the publisher's and the worker's: with an expiry below their skew, every refresh would be dropped.
MESSAGE_EXPIRES_SECONDS: Final = 6 * 3_600

# A connection may fall silent and stay open at both ends. These three bound the time until a worker closes it: 3 to 5 s
# on Redis, 6 to 9 s on RabbitMQ, where two heartbeats have to be missed. A worker whose main process is blocked for
# longer loses its connection and makes a new one, which ends no refresh.
HEALTH_CHECK_SECONDS: Final = 2
SOCKET_SECONDS: Final = 2
HEARTBEAT_SECONDS: Final = 3
# Celery would wait 2 s longer after each attempt, up to 30 s, and prolong an outage of minutes by half a minute.
CONNECT_AGAIN_SECONDS: Final = 1.0

# The delay after the visibility timeout until a killed worker's message is delivered again, on Redis.
RESTORE_SECONDS: Final = 5
MUTEX_SECONDS: Final = 10

# A message that kills its worker's connection or process is redelivered this often, and then dropped. Refreshes need no
# redelivery: the lease of a dead run expires, and the next reader claims.
MAX_REDELIVERIES: Final = 3


def miss_queue(namespace: str, broker_url: str = "") -> str:
    """Return the name of the queue for refreshes with a waiter, which workers consume first."""
    return _name(f"{namespace}.refresh-miss", broker_url)


def refresh_queue(namespace: str, broker_url: str = "") -> str:
    """Return the name of the queue for all other refreshes."""
    return _name(f"{namespace}.refresh", broker_url)


def queue_name(namespace: str, broker_url: str, *, has_waiter: bool) -> str:
    """Return the name of the queue to publish to."""
    return (miss_queue if has_waiter else refresh_queue)(namespace, broker_url)


def queue_name_of(namespace: str, broker_url: str, routing_key: str) -> str:
    """Return the name of a message's queue, by its routing key, to which RabbitMQ prepends delays."""
    misses = miss_queue(namespace, broker_url)
    is_miss = routing_key.rpartition(".")[2] == _routing_key(misses, broker_url).rpartition(".")[2]
    return misses if is_miss else refresh_queue(namespace, broker_url)


def _routing_key(queue: str, broker_url: str) -> str:
    # A single word on RabbitMQ: after a pause, the end of the key decides where a message goes, so with a dot a
    # namespace that ends like another would take its messages. No namespace has a colon.
    return queue.replace(".", ":") if is_rabbitmq(broker_url) else queue


def _name(queue: str, broker_url: str) -> str:
    # A queue's type can't be changed: earlier classic queues of these names could not be declared as quorum queues.
    # With a new name, workers of both releases go on, each with the readers of its own release.
    return f"{queue}.quorum" if is_rabbitmq(broker_url) else queue


def queues(namespace: str, broker_url: str) -> tuple[Any, Any]:
    """Return the kombu queues that workers consume: misses, and all other refreshes.

    The Redis transport polls them in this order.
    """
    return tuple(_declared(make(namespace, broker_url), broker_url) for make in (miss_queue, refresh_queue))


def queue_for(namespace: str, broker_url: str, *, has_waiter: bool) -> Any:
    """Return the kombu queue to publish to."""
    return _declared(queue_name(namespace, broker_url, has_waiter=has_waiter), broker_url)


def queue_of(namespace: str, broker_url: str, routing_key: str) -> Any:
    """Return a message's kombu queue, by its routing key."""
    return _declared(queue_name_of(namespace, broker_url, routing_key), broker_url)


def plain_queue(name: str) -> Any:
    """Return a kombu queue as Celery makes it for a name after ``-Q``."""
    from kombu.entity import Exchange, Queue  # not from kombu, which replaces itself while it is imported

    # An exchange of its own, so that no message reaches two queues.
    return Queue(name, Exchange(name, type="direct"), routing_key=name)


def _declared(name: str, broker_url: str) -> Any:
    from kombu.entity import Exchange, Queue  # not from kombu, which replaces itself while it is imported

    if not is_rabbitmq(broker_url):
        return plain_queue(name)
    return Queue(
        name,
        # RabbitMQ does the pause before a retry (Celery's native delayed delivery), which needs a topic exchange. With
        # a direct exchange the worker would hold the message during the pause, in one of its few slots.
        Exchange(name, type="topic"),
        routing_key=_routing_key(name, broker_url),
        queue_arguments={
            # It survives the loss of a node, and only it counts redeliveries.
            "x-queue-type": "quorum",
            "x-delivery-limit": MAX_REDELIVERIES,
        },
    )


def publisher_settings(broker_url: str, timeout_seconds: float) -> dict[str, Any]:
    """Return the settings of a Celery app that only publishes refreshes.

    Each step of a publication may take ``timeout_seconds``; the publisher's thread waits for it, no reader does.
    """
    return {
        **connection_settings(broker_url),
        "task_serializer": "json",
        "accept_content": ["json"],
        # Results are not read.
        "result_backend": None,
        "task_ignore_result": True,
        "task_create_missing_queues": True,
        # Never retried, since the claim is taken back and the next reader claims.
        "task_publish_retry": False,
        "broker_connection_retry": False,
        "broker_connection_timeout": timeout_seconds,
        # One for publishing, and one for polling the queue's length.
        "broker_pool_limit": 2,
        # Nothing sends heartbeats between two publications, so RabbitMQ would close the connection, and the first
        # publication after a pause would fail.
        "broker_heartbeat": 0,
        "broker_transport_options": publisher_transport_options(broker_url, timeout_seconds),
    }


def publisher_transport_options(broker_url: str, timeout_seconds: float) -> dict[str, Any]:
    """Return the options that bound every step of a publication, by kind of broker."""
    connecting = {"connect_timeout": timeout_seconds} if is_rabbitmq(broker_url) else {}
    return {"max_retries": 0, **connecting, **_bounded(broker_url, timeout_seconds)}


def _bounded(broker_url: str, timeout_seconds: float) -> dict[str, Any]:
    """Return the options of a connection with bounded waits, by kind of broker."""
    if is_rabbitmq(broker_url):
        return {
            # Without it a RabbitMQ that is silent or refuses loses messages without an error …
            "confirm_publish": True,
            # … and without these, the wait for the confirmation never ends.
            "read_timeout": timeout_seconds,
            "write_timeout": timeout_seconds,
        }
    return {
        # Without them a worker never recovers from a silent connection.
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": timeout_seconds,
        "socket_keepalive": True,
        "health_check_interval": HEALTH_CHECK_SECONDS,
        "retry_on_timeout": False,
        **sentinel_options(broker_url),
    }


def consumer_settings(namespace: str, broker_url: str, *, visibility_timeout_seconds: int) -> dict[str, Any]:
    """Return a worker's settings for the broker, and for taking and returning messages.

    Args:
        namespace: the namespace of the queues.
        broker_url: the URL of their broker.
        visibility_timeout_seconds: the time after which Redis' transport redelivers unacknowledged messages.
    """
    return {
        **connection_settings(broker_url),
        "broker_connection_retry_on_startup": True,
        # Forever, since a worker that ends after a long outage would have to be started manually.
        "broker_connection_max_retries": None,
        "broker_heartbeat": HEARTBEAT_SECONDS,
        # Checked four times in that time. Redis' transport has a health check instead.
        "broker_heartbeat_checkrate": 4,
        "broker_transport_options": consumer_transport_options(broker_url, visibility_timeout_seconds),
        # JSON only: a message with another content type is refused before it is decoded.
        "task_serializer": "json",
        "accept_content": ["json"],
        "task_queues": list(queues(namespace, broker_url)),
        "task_default_queue": refresh_queue(namespace, broker_url),
        # For retries that RabbitMQ delays, so that a majority of its nodes keeps them too.
        "broker_native_delayed_delivery_queue_type": "quorum",
        # A message is acknowledged after its refresh, and a killed pool process returns it. Redelivery is harmless, as
        # acquire recognises an old message.
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        # A refresh that has lost its broker still commits: the lease decides, not the acknowledgement.
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        # One message per process at a time: a prefetched one would wait behind a slow load while others are idle.
        "worker_prefetch_multiplier": 1,
        # A message with a distant ETA stays in memory until then.
        "worker_eta_task_limit": 1_000,
    }


def consumer_transport_options(broker_url: str, visibility_timeout_seconds: int) -> dict[str, Any]:
    """Return the options of a worker's connection, by kind of broker."""
    bounded = _bounded(broker_url, SOCKET_SECONDS)
    if is_rabbitmq(broker_url):
        return bounded
    return {
        **bounded,
        # Misses first.
        "queue_order_strategy": "priority",
        "visibility_timeout": visibility_timeout_seconds,
        # Messages taken for longer than that are restored this often (kombu's default is every 100 s) …
        "unacked_restore_interval": RESTORE_SECONDS,
        "unacked_restore_throttle": 1,
        # … by one worker at a time. One that dies doing so blocks the others for this long instead of 5 minutes.
        "unacked_mutex_expire": MUTEX_SECONDS,
    }
