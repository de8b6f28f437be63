"""The reader's side of the broker: publication and queue lengths, never retried and always bounded in time.

Celery's defaults block a caller for a minute on a silent broker. With these options a refused connection fails within
milliseconds and a silent one after half a second (measured), and only the publisher's thread waits.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from redis.exceptions import ConnectionError, DataError, RedisError, ResponseError, TimeoutError

from api_client.config.broker import MESSAGE_EXPIRES_SECONDS, queue_for
from api_client.config.broker_url import is_rabbitmq
from api_client.config.settings import SharedSettings
from api_client.errors import CacheUnavailable
from api_client.protocol import messages
from api_client.protocol.messages import RefreshItem
from api_client.transport.wire import reason
from api_client.trigger.backlog import TriggerDropped

if TYPE_CHECKING:
    from api_client.trigger.private_app import PublishingApp

TIMEOUT_SECONDS: Final = 0.5
# The publisher's thread releases the interpreter between two messages. A reader whose reply has come then waits for one
# message instead of up to 5 ms (sys.getswitchinterval). After a pause of 0 the publisher would take the interpreter
# back before a waiting thread has woken.
GIL_YIELD_SECONDS: Final = 0.000_05
# RabbitMQ's reply codes: no such exchange; no queue is bound to it.
_NO_SUCH_QUEUE: Final = frozenset({404, 312})
_REFUSED: Final = frozenset({403})


def fault_text(error: Exception, url: str = "") -> str:
    """Describe an error of cache or broker, as `reason` does; kombu wraps the errors of its transports."""
    found = error if isinstance(error, RedisError | OSError) else error.__cause__ or error
    if isinstance(found, RedisError | OSError):
        return reason(found, url)
    return f"{type(found).__name__}: {str(error)[:200]}" if hasattr(found, "reply_code") else type(found).__name__


def publication_fault(error: Exception, settings: SharedSettings) -> str:
    """Describe why a refresh was not published, without secrets."""
    variable = settings.variable_of("broker_url")
    if isinstance(error, TriggerDropped) and error.reason:
        return f"the broker ({variable}) failed repeatedly, and is not tried again yet: {error.reason}"
    if isinstance(error, TriggerDropped | CacheUnavailable):
        return str(error)
    return f"the broker ({variable}) can't be used: {fault_text(error, settings.broker_url)}"


def monitoring_options(items: Sequence[RefreshItem], namespace: str) -> dict[str, str]:
    """Return the options that make monitors show a refresh under its query's name, without params."""
    return {
        "shadow": display_name(items[0].query),
        "argsrepr": messages.shown_args(items, namespace),
        "kwargsrepr": "{}",
    }


def display_name(query: str) -> str:
    """Return the name of a query's refreshes in monitors and in Celery's counts."""
    return f"refresh {query}"


class Broker(Protocol):
    """Destination of refreshes."""

    def publish(self, items: Sequence[RefreshItem], *, has_waiter: bool) -> None:
        """Publish refreshes in one message; the broker's errors pass through."""

    def publish_each(self, contents: Sequence[Sequence[RefreshItem]], *, has_waiter: bool) -> list[Exception | None]:
        """Publish several messages, each with its refreshes; return an error or None for each message."""

    def waiting(self, *, has_waiter: bool = False) -> int:
        """Return the number of queued early and stale refreshes, or of those with a waiter."""

    def close(self) -> None:
        """Close the connections. The broker can be used again afterwards."""


class CeleryBroker:
    """Publishes refreshes through its own Celery app, made at the first use (importing Celery takes 50 ms)."""

    def __init__(self, url: str, namespace: str) -> None:
        self._url, self._namespace = url, namespace
        self._app: PublishingApp | None = None

    def publish(self, items: Sequence[RefreshItem], *, has_waiter: bool) -> None:
        """Publish one message.

        On RabbitMQ the queues usually exist, so a reader's user needs only permission to write. Until the first worker
        ever has started, they are declared here if the user may.

        Raises:
            kombu.exceptions.OperationalError: the broker refuses, is silent or is full.
        """
        queue = self._queue(has_waiter=has_waiter)
        if not is_rabbitmq(self._url):
            self._send(items, queue)
            return
        try:
            self._send(items, queue, declare=[], mandatory=True)
        except Exception as error:
            if not _has_reply_code(error, _NO_SUCH_QUEUE):
                raise
            self._declare_and_send(items, queue)

    def _declare_and_send(self, items: Sequence[RefreshItem], queue: Any) -> None:
        from kombu.exceptions import OperationalError

        try:
            self._send(items, queue, mandatory=True)
        except Exception as error:
            if not _has_reply_code(error, _REFUSED):
                raise
            why = f"no queue {queue.name!r} yet, and this user may not declare it: workers do when they start"
            raise OperationalError(why) from error

    def _send(self, items: Sequence[RefreshItem], queue: Any, **options: Any) -> None:
        with self.app.producer_pool.acquire(block=True, timeout=TIMEOUT_SECONDS) as producer:
            try:
                self.app.send_task(
                    messages.TASK_NAME,
                    args=(messages.encode(items),),
                    queue=queue,
                    producer=producer,
                    expires=MESSAGE_EXPIRES_SECONDS,
                    retry=False,
                    ignore_result=True,
                    **monitoring_options(items, self._namespace),
                    **options,
                )
            except Exception as error:
                if _has_reply_code(error, _NO_SUCH_QUEUE | _REFUSED):
                    # RabbitMQ has closed the channel, or still owes it an answer; kombu would go on using it.
                    with suppress(Exception):
                        producer.connection.close()
                raise

    def publish_each(self, contents: Sequence[Sequence[RefreshItem]], *, has_waiter: bool) -> list[Exception | None]:
        """Publish messages, in one round trip if the transport can; return an error or None for each.

        In one round trip a message takes 0.10 ms of CPU time; with send_task, 0.38 ms. If the broker replies with an
        error, each message is sent alone, to find out which ones succeed; a duplicate costs one read of the record.
        After a message that finds the broker gone or silent, the rest are not tried.
        """
        try:
            if self._publish_at_once(contents, self._queue(has_waiter=has_waiter)):
                return [None] * len(contents)
        except Exception as error:  # noqa: BLE001 - the outcome of each message
            if len(contents) == 1 or _is_out_of_reach(error):
                return [error] * len(contents)
        return self._publish_one_by_one(contents, has_waiter)

    def _publish_at_once(self, contents: Sequence[Sequence[RefreshItem]], queue: Any) -> bool:
        """Publish all messages in one round trip; return False if the transport can't."""
        amqp = self.app.amqp
        with self.app.producer_pool.acquire(block=True, timeout=TIMEOUT_SECONDS) as producer:
            # kombu before 5.7 has no batches.
            if not getattr(producer, "supports_batch_publish", False):
                return False
            with producer.batch():
                for items in contents:
                    time.sleep(GIL_YIELD_SECONDS)
                    # Like send_task, but without the 50 µs for options that these messages do not have.
                    message = amqp.create_task_message(
                        str(uuid.uuid4()), messages.TASK_NAME, (messages.encode(items),), {},
                        expires=MESSAGE_EXPIRES_SECONDS, ignore_result=True,
                        **monitoring_options(items, self._namespace),
                    )  # fmt: skip
                    amqp.send_task_message(producer, messages.TASK_NAME, message, queue=queue, retry=False)
        return True

    def _publish_one_by_one(
        self,
        contents: Sequence[Sequence[RefreshItem]],
        has_waiter: bool,  # noqa: FBT001
    ) -> list[Exception | None]:
        errors: list[Exception | None] = []
        for items in contents:
            last = errors[-1] if errors else None
            if last is not None and _is_out_of_reach(last):
                errors.append(last)
                continue
            try:
                self.publish(items, has_waiter=has_waiter)
                errors.append(None)
            except Exception as error:  # noqa: BLE001 - the outcome of this message
                errors.append(error)
        return errors

    def waiting(self, *, has_waiter: bool = False) -> int:
        """Return the number of messages in a queue, for misses or all other refreshes; 0 if it does not exist yet.

        Raises:
            kombu.exceptions.OperationalError: the broker is unavailable.
        """
        with self.app.pool.acquire(block=True, timeout=TIMEOUT_SECONDS) as connection:
            return queue_length(connection, self._queue(has_waiter=has_waiter).name)

    def _queue(self, *, has_waiter: bool) -> Any:
        return queue_for(self._namespace, self._url, has_waiter=has_waiter)

    def close(self) -> None:
        """Close the connections. The broker can be used again afterwards."""
        app, self._app = self._app, None
        if app is not None:
            app.close()

    @property
    def app(self) -> PublishingApp:
        """The Celery app that publishes."""
        if self._app is None:
            from api_client.trigger.private_app import PublishingApp

            self._app = PublishingApp.to(self._url, TIMEOUT_SECONDS)
        return self._app


def queue_length(connection: Any, queue: str) -> int:
    """Return the number of messages in ``queue`` of a kombu connection; 0 if it does not exist."""
    if connection.transport.driver_type == "redis":
        # A new channel would connect each time, which takes 3 ms; a missing queue does not harm the default one.
        return _declared_length(connection, connection.default_channel, queue)
    # Unlike `channel` alone, this reconnects if a refused publication has closed the connection.
    with connection.default_channel.connection.channel() as channel:
        return _declared_length(connection, channel, queue)


def _declared_length(connection: Any, channel: Any, queue: str) -> int:
    try:
        return int(channel.queue_declare(queue=queue, passive=True).message_count)
    except connection.channel_errors:
        # Redis drops an empty list, and on RabbitMQ a queue exists only after its first message or worker.
        return 0


def _has_reply_code(error: BaseException, codes: frozenset[int]) -> bool:
    """Return whether RabbitMQ has replied with one of these codes."""
    return any(getattr(one, "reply_code", None) in codes for one in (error, error.__cause__))


def _is_out_of_reach(error: Exception) -> bool:
    """Return whether the next message would meet the same error, and take as long."""
    from kombu.exceptions import OperationalError

    cause = error.__cause__ or error
    if isinstance(cause, (ResponseError, DataError)):
        return False
    return isinstance(error, OperationalError) or isinstance(cause, (OSError, ConnectionError, TimeoutError))
