"""The reader's side of the broker: publish a refresh, and ask how many wait. Never retried, always bounded in time.

Celery's defaults block a caller for a minute on a silent broker. The options below were measured (a refused
connection fails in milliseconds, a silent one after half a second); the publisher's thread pays even that, no reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from api_client import messages
from api_client.messages import RefreshItem

if TYPE_CHECKING:
    from celery import Celery

TIMEOUT_SECONDS: Final = 0.5


def miss_queue(namespace: str) -> str:
    """Return the queue that workers look at first: somebody waits for these."""
    return f"{namespace}.refresh-miss"


def refresh_queue(namespace: str) -> str:
    """Return the queue of all other refreshes."""
    return f"{namespace}.refresh"


def shown_options(items: Sequence[RefreshItem], namespace: str) -> dict[str, str]:
    """Return the options that decide what monitors show: a refresh under its query's name, and no params."""
    return {
        "shadow": f"refresh {items[0].query}",
        "argsrepr": messages.shown_args(items, namespace),
        "kwargsrepr": "{}",
    }


def declared(queue: str) -> Any:
    """Return the kombu queue of this name: an exchange of its own, so that no message reaches two queues."""
    from kombu import Exchange, Queue

    return Queue(queue, Exchange(queue, type="direct"), routing_key=queue)


class Broker(Protocol):
    """The way to the workers."""

    def publish(self, items: Sequence[RefreshItem], *, someone_waits: bool) -> None:
        """Hand refreshes over; raises what the broker raises."""

    def waiting(self) -> int:
        """Return how many early and stale refreshes wait."""

    def close(self) -> None:
        """Close the connections. The broker can be used again afterwards."""


class CeleryBroker:
    """Publishes refreshes through a Celery app of its own, made at the first use (importing Celery takes 50 ms)."""

    def __init__(self, url: str, namespace: str) -> None:
        self._url, self._namespace = url, namespace
        self._app: Celery | None = None

    def publish(self, items: Sequence[RefreshItem], *, someone_waits: bool) -> None:
        """Publish one message.

        Raises:
            kombu.exceptions.OperationalError: the broker refuses, is silent, or is full.
        """
        queue = miss_queue(self._namespace) if someone_waits else refresh_queue(self._namespace)
        self.app.send_task(
            messages.TASK_NAME,
            args=(messages.encode(items),),
            queue=declared(queue),
            retry=False,
            ignore_result=True,
            **shown_options(items, self._namespace),
        )

    def waiting(self) -> int:
        """Return how many messages wait in the queue of early and stale refreshes; 0 where there is no queue yet.

        Raises:
            kombu.exceptions.OperationalError: the broker can't be asked.
        """
        with self.app.pool.acquire(block=True, timeout=TIMEOUT_SECONDS) as connection:
            return queue_length(connection, refresh_queue(self._namespace))

    def close(self) -> None:
        """Close the connections. The broker can be used again afterwards."""
        if self._app is not None:
            self._app.close()
            self._app = None

    @property
    def app(self) -> Celery:
        """The Celery app that publishes."""
        if self._app is None:
            self._app = _publishing_app(self._url)
        return self._app


def queue_length(connection: Any, queue: str) -> int:
    """Return how many messages wait in ``queue`` of a kombu connection; 0 where there is none."""
    with connection.channel() as channel:
        try:
            return int(channel.queue_declare(queue=queue, passive=True).message_count)
        except connection.channel_errors:
            # Redis drops an empty list, and RabbitMQ knows no queue before its first message or worker.
            return 0


def _publishing_app(url: str) -> Celery:
    from celery import Celery

    app = Celery("refresher-publisher", set_as_current=False)
    app.conf.update(
        broker_url=url,
        task_serializer="json",
        accept_content=["json"],
        result_backend=None,
        task_ignore_result=True,
        task_create_missing_queues=True,
        task_publish_retry=False,
        broker_connection_retry=False,
        broker_connection_timeout=TIMEOUT_SECONDS,
        broker_pool_limit=2,
        broker_transport_options=transport_options(url),
    )
    return app


def transport_options(url: str) -> dict[str, Any]:
    """Return the options that bound every step of a publication, by kind of broker."""
    if url.startswith(("amqp", "pyamqp")):
        # Without confirmation a silent RabbitMQ loses messages; without timeouts the confirmation blocks for ever.
        return {
            "max_retries": 0, "confirm_publish": True, "connect_timeout": TIMEOUT_SECONDS,
            "read_timeout": TIMEOUT_SECONDS, "write_timeout": TIMEOUT_SECONDS,
        }  # fmt: skip
    return {
        "max_retries": 0,
        "socket_timeout": TIMEOUT_SECONDS,
        "socket_connect_timeout": TIMEOUT_SECONDS,
        "socket_keepalive": True,
        "health_check_interval": 5,
        "retry_on_timeout": False,
    }
