"""The consumer of a worker: Celery's own, protected from a lost broker and malformed messages."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from celery.exceptions import CPendingDeprecationWarning
from celery.worker.state import active_requests, reserved_requests

from api_client.config.broker import CONNECT_AGAIN_SECONDS
from api_client.config.environment import without_password
from api_client.protocol.messages import TASK_NAME
from refresher.errors import place_of
from refresher.flow.ports import DropReason, events_of
from refresher.ops.broker import replaced_keys
from refresher.ops.heartbeat import heartbeat_of
from refresher.worker.celery_fixes.message_guard import RateLimitedRejectLog, Rejection, validate_message
from refresher.worker.celery_fixes.refused_commands import describe_refused_command
from refresher.worker.celery_fixes.unacked import UnackedDeliveries
from refresher.worker.celery_fixes.unreadable_envelopes import ENVELOPE_ERRORS, tolerate_unreadable_envelopes

if TYPE_CHECKING:

    class _Consumer:
        """The part of Celery's class in use here, which has no types."""

        loop: Callable[..., None]

        def __init__(self, *args: Any, **options: Any) -> None: ...
        def create_task_handler(self, *args: Any, **options: Any) -> Callable[[Any], None]: ...
        def on_decode_error(self, message: Any, exc: Exception) -> None: ...
        def on_connection_error_after_connected(self, exc: Exception) -> None: ...
        def ensure_connected(self, conn: Any) -> Any: ...
        def __getattr__(self, name: str) -> Any: ...
else:
    from celery.worker.consumer import Consumer as _Consumer

log: Final = logging.getLogger(__name__)

REFUSED_PAUSE_SECONDS: Final = 1.0


class RefreshConsumer(_Consumer):
    """A consumer that survives any message, and the loss of its broker in the middle of a refresh.

    Nothing is restored or acknowledged over a lost connection. Its refreshes go on and commit (the lease decides, not
    the acknowledgement), and their messages are acknowledged over the next connection (`UnackedDeliveries`), or
    RabbitMQ redelivers them and acquire finds that nothing is left to do. A lost acknowledgement does not occupy a slot
    of the worker.

    If the broker refuses a command of the worker, because it is full for example, the worker reconnects after a second.

    A message that differs from our publisher's is rejected before Celery sees it, with a log line that shows nothing of
    its body. One that even the transport can't read is skipped.
    """

    beats_while_connecting: bool = True
    """Flag for `refresher.worker.lifecycle`: each attempt to connect is a sign of life."""

    def __init__(self, *args: Any, app: Any, **options: Any) -> None:
        self._refreshes_only: bool = getattr(app, "refreshes_only", False)
        if self._refreshes_only:
            # Refreshes need no revocations and no elections. Both steps cost each worker a message per event of every
            # other one, and need permissions on the broker that nothing else does. An application's own app decides.
            options |= {"without_gossip": True, "without_mingle": True}
        super().__init__(*args, app=app, **options)
        self._unacked = UnackedDeliveries(lambda: self.connection)
        self._rejected = RateLimitedRejectLog(lambda reason: events_of(self.app).message_dropped(reason=reason.value))
        self.loop: Callable[..., None] = self.survive_unreadable(self.loop)
        self.blueprint.start = self.survive_refusals(self.blueprint.start)
        self.blueprint.info = _without_secrets(self.blueprint.info)

    def survive_unreadable(self, loop: Callable[..., None]) -> Callable[..., None]:
        """Wrap a loop so that a message on which Celery raises ends only the connection, not the worker."""

        def surviving(*args: Any) -> None:
            try:
                loop(*args)
            except self.connection_errors:
                raise
            except ENVELOPE_ERRORS as error:
                # A message of another application's task, on which Celery has raised. It can't be rejected, so the
                # worker reconnects.
                self._report_unreadable(error)
                raise ConnectionError("after a message that could not be handled") from None

        return surviving

    def survive_refusals(self, start: Callable[[_Consumer], None]) -> Callable[[_Consumer], None]:
        """Wrap ``start`` so that a command rejected by the broker ends only the connection, not the worker."""

        def surviving(consumer: _Consumer) -> None:
            try:
                start(consumer)
            except self.channel_errors as error:
                # The broker may accept later what it refuses now (full, read-only, without its replicas). Reconnect,
                # because this connection counts unacknowledged messages as in progress, and would take no more.
                log.error("the broker rejected a command of this worker: %s", describe_refused_command(error))
                self._log_replaced_keys(error)
                time.sleep(REFUSED_PAUSE_SECONDS)
                raise ConnectionError("the broker rejected a command") from None

        return surviving

    @property
    def event_dispatcher(self) -> Any:
        """Sender of the worker's events, over its own connection."""
        return self._event_dispatcher

    @event_dispatcher.setter
    def event_dispatcher(self, dispatcher: Any) -> None:
        # The worker's heartbeat, every other second, would be retried until the broker is back, in the very loop that
        # has to notice the broker's loss. Events that can't be sent wait for the next connection.
        if dispatcher is not None:
            send = dispatcher.send
            dispatcher.send = lambda *args, **fields: send(*args, **{**fields, "retry": False})
        self._event_dispatcher = dispatcher

    def create_task_handler(self, *args: Any, **options: Any) -> Callable[[Any], None]:
        """Return the handler of messages, which is Celery's behind the guard."""
        handle = super().create_task_handler(*args, **options)

        def guarded(message: Any) -> None:
            self._track(message)
            rejection = validate_message(message, refreshes_only=self._refreshes_only)
            if rejection is None:
                handle(message)
            else:
                self._reject(message, rejection)

        return guarded

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        """Reject an undecodable message. Celery would log its body, whose params may be personal."""
        self._track(message)
        headers = message.headers
        if self._refreshes_only or (isinstance(headers, Mapping) and headers.get("task") == TASK_NAME):
            self._reject(message, Rejection(DropReason.UNDECODABLE, f"it can't be decoded: {type(exc).__name__}"))
        else:
            super().on_decode_error(message, exc)

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Give up the lost connection, with everything that could be settled only over it."""
        transport: Any = self.connection.transport
        if transport.driver_type == "redis":
            running = [request for request in tuple(active_requests) if not request.acknowledged]
            self._unacked.take_over(transport, [request.message.delivery_tag for request in running])
            for channel in transport.channels:
                channel.do_restore = False
        else:
            for request in {*active_requests, *reserved_requests}:
                request.acknowledged = True
        for connection in (self.connection, getattr(self.event_dispatcher, "connection", None)):
            _close_socket(connection)
        with warnings.catch_warnings():
            # Celery's warning that its default will one day be to end the refreshes.
            warnings.simplefilter("ignore", CPendingDeprecationWarning)
            super().on_connection_error_after_connected(exc)

    def connection_for_read(self, heartbeat: float | None = None) -> Any:
        """Connect to the broker for consuming."""
        connection = self.app.connection_for_read(heartbeat=heartbeat)
        tolerate_unreadable_envelopes(connection, self._report_unreadable, self._log_replaced_keys)
        connected = self.ensure_connected(connection)
        self._unacked.settle_over(connected)
        return connected

    def ensure_connected(self, conn: Any) -> Any:
        """Try to connect once a second, for as long as it takes; Celery's pauses would grow to half a minute."""
        connect, heartbeat = conn.ensure_connection, heartbeat_of(self.app)

        def with_heartbeat(errback: Callable[..., Any], *args: Any, **options: Any) -> Any:
            def on_failure(*error: Any) -> Any:
                heartbeat.beat()
                return errback(*error)

            return connect(on_failure, *args, **options)

        conn.ensure_connection = functools.partial(
            with_heartbeat, interval_start=CONNECT_AGAIN_SECONDS, interval_step=0, interval_max=CONNECT_AGAIN_SECONDS
        )
        return super().ensure_connected(conn)

    def _log_replaced_keys(self, error: Exception) -> None:
        if "WRONGTYPE" not in str(error):
            return
        try:
            # Over a connection of its own, since the one in use may be in the middle of a reply.
            with self.app.connection_for_read() as connection:
                for key in replaced_keys(connection.default_channel.client, self.app.amqp.queues):
                    log.error("%s: %s", key.fault, key.remedy)
        except Exception as refusal:  # noqa: BLE001 - kombu raises its own, which would end the worker
            log.error("could not query which of the broker's keys has a wrong type: %s", type(refusal).__name__)

    def _track(self, message: Any) -> None:
        if self.connection.transport.driver_type == "redis":
            message.channel = self._unacked

    def _reject(self, message: Any, rejection: Rejection) -> None:
        message.reject_log_error(log, self.connection_errors)
        self._rejected.report(rejection)

    def _report_unreadable(self, error: Exception) -> None:
        text = f"it has no readable envelope: {type(error).__name__} at {place_of(error)}"
        self._rejected.report(Rejection(DropReason.NO_ENVELOPE, text))


def _without_secrets(info: Callable[[Any], dict[str, Any]]) -> Callable[[Any], dict[str, Any]]:
    """Wrap the consumer's description for ``inspect stats`` and Flower, which show it to anyone who may ask.

    Celery omits only the password of the connection in use; those of alternates and Sentinels, and the one in the URL
    of a Unix socket, would be shown.
    """

    def shown(consumer: Any) -> dict[str, Any]:
        found = info(consumer)
        broker = found.get("broker", {})
        if "://" in str(broker.get("hostname")):
            broker["hostname"] = without_password(broker["hostname"])
        broker["alternates"] = [without_password(url) for url in broker.get("alternates") or ()]
        options = broker.get("transport_options") or {}
        broker["transport_options"] = {name: value for name, value in options.items() if name != "sentinel_kwargs"}
        return found

    return shown


def _close_socket(connection: Any) -> None:
    """Close a lost AMQP connection's socket. Celery would first close the connection, and wait twice for the reply."""
    established = getattr(connection, "_connection", None)
    collect = getattr(established, "collect", None)  # only py-amqp's has one
    if collect is not None:
        with contextlib.suppress(Exception):
            collect()
