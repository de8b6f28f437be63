"""The consumer of a worker: Celery's own, kept from the faults of a lost broker and of malformed messages."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from celery.exceptions import CPendingDeprecationWarning
from celery.worker.state import active_requests, reserved_requests

from api_client.config.broker import CONNECT_AGAIN_SECONDS
from api_client.protocol.messages import TASK_NAME
from refresher.flow.events import events_of
from refresher.ops.broker_keys import replaced_keys
from refresher.ops.health import pulse_of
from refresher.worker.celery_fixes.carried import CarriedDeliveries
from refresher.worker.celery_fixes.envelopes import ENVELOPE_ERRORS, tolerate_unreadable_envelopes
from refresher.worker.celery_fixes.message_guard import DropReason, RateLimitedRejectLog, Rejection, validate_message
from refresher.worker.celery_fixes.refused_commands import describe_refused_command

if TYPE_CHECKING:

    class _Consumer:
        """What is used of Celery's class, which has no types."""

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
    """A consumer that survives losing its broker in the middle of a refresh, and any message.

    When its connection is lost, Celery 5.7 with kombu 5.7 ends the worker in two ways: closing the connection, it
    restores the messages that are not acknowledged, over that very connection; and when their tasks end, it
    acknowledges them over it. Both meet an AttributeError that nobody expects. So neither is tried: the refreshes go
    on and commit (the lease decides, not the acknowledgement), and their messages are acknowledged over the next
    connection (`CarriedDeliveries`), or RabbitMQ delivers them again, when acquire finds that nothing is left to do.

    A broker that refuses what the worker has to write, because it is full for example, would end it as well. It is left
    alone for a second, and connected to anew.

    A message that is not as a publisher of ours makes it is looked through before Celery sees it, which some of them
    would end, and some would keep in a loop. It is rejected, with a line in the log that shows nothing of its body. One
    that even the transport can't read is passed over.
    """

    beats_while_connecting: bool = True
    """Tells `refresher.ops.health` that each attempt to connect is a sign of life."""

    def __init__(self, *args: Any, app: Any, **options: Any) -> None:
        if getattr(app, "refreshes_only", False):
            # Refreshes revoke nothing and elect nobody. Both steps cost each worker a message per event of every other
            # one, and need rights on the broker that nothing else does. An application's own app decides for itself.
            options |= {"without_gossip": True, "without_mingle": True}
        super().__init__(*args, app=app, **options)
        self._carried = CarriedDeliveries(lambda: self.connection)
        self._dropped = RateLimitedRejectLog(lambda reason: events_of(self.app).message_dropped(reason=reason.value))
        loop: Callable[..., None] = self.loop  # type: ignore[has-type, unused-ignore]

        def surviving_loop(*args: Any) -> None:
            try:
                loop(*args)
            except self.connection_errors:
                raise
            except ENVELOPE_ERRORS as error:
                # Of another application's task, over which Celery has raised. There is nothing to reject: the
                # connection is made anew.
                self._tell_of_no_envelope(error)
                raise ConnectionError("after a message that could not be handled") from None

        self.loop = surviving_loop
        begin: Callable[[_Consumer], None] = self.blueprint.start

        def surviving_start(consumer: _Consumer) -> None:
            try:
                begin(consumer)
            except self.channel_errors as error:
                # What it refuses now (full, read-only, without its replicas) it may take later. A new connection, since
                # this one counts messages that it could not acknowledge as being worked on, and takes no more.
                log.error("the broker refused a command of this worker: %s", describe_refused_command(error))
                self._log_replaced_keys(error)
                time.sleep(REFUSED_PAUSE_SECONDS)
                raise ConnectionError("the broker refused a command") from None

        self.blueprint.start = surviving_start

    @property
    def event_dispatcher(self) -> Any:
        """What sends the worker's events, on a connection of its own."""
        return self._event_dispatcher

    @event_dispatcher.setter
    def event_dispatcher(self, dispatcher: Any) -> None:
        # The worker's sign of life, every other second, would be tried until the broker is back, in the loop that has
        # to notice meanwhile that it has gone. Events that can't be sent wait for the next connection.
        if dispatcher is not None:
            send = dispatcher.send
            dispatcher.send = lambda *args, **fields: send(*args, **{**fields, "retry": False})
        self._event_dispatcher = dispatcher

    def create_task_handler(self, *args: Any, **options: Any) -> Callable[[Any], None]:
        """Return what is called with each message: Celery's own handler, behind the guard."""
        handle = super().create_task_handler(*args, **options)
        refreshes_only = getattr(self.app, "refreshes_only", False)

        def guarded(message: Any) -> None:
            fault = validate_message(message, refreshes_only=refreshes_only)
            if fault is None:
                handle(message)
            else:
                self._drop(message, fault)

        return guarded

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        """Drop what can't be decoded. Celery would show its body, in which params may be personal."""
        headers = message.headers
        ours = isinstance(headers, Mapping) and headers.get("task") == TASK_NAME
        if ours or getattr(self.app, "refreshes_only", False):
            self._drop(message, Rejection(DropReason.UNDECODABLE, f"it can't be decoded: {type(exc).__name__}"))
        else:
            super().on_decode_error(message, exc)

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Give the lost connection up, and all that could only be said over it."""
        transport: Any = self.connection.transport
        if transport.driver_type == "redis":
            running = [request for request in tuple(active_requests) if not request.acknowledged]
            self._carried.lost(transport, [request.message for request in running])
            for channel in transport.channels:
                channel.do_restore = False
        else:
            for request in {*active_requests, *reserved_requests}:
                request.acknowledged = True
        for connection in (self.connection, getattr(self.event_dispatcher, "connection", None)):
            _let_go(connection)
        with warnings.catch_warnings():
            # It wants to end the refreshes instead, and says at each loss that it will one day by default.
            warnings.simplefilter("ignore", CPendingDeprecationWarning)
            super().on_connection_error_after_connected(exc)

    def connection_for_read(self, heartbeat: float | None = None) -> Any:
        """Connect to the broker, to take messages."""
        connection = self.app.connection_for_read(heartbeat=heartbeat)
        tolerate_unreadable_envelopes(connection, self._tell_of_no_envelope, self._log_replaced_keys)
        connected = self.ensure_connected(connection)
        self._carried.connected(connected)
        return connected

    def ensure_connected(self, conn: Any) -> Any:
        """Connect, for as long as it takes; once a second, where Celery's pauses would grow to half a minute."""
        connect, pulse = conn.ensure_connection, pulse_of(self.app)

        def heard(errback: Callable[..., Any], *args: Any, **options: Any) -> Any:
            def failed(*error: Any) -> Any:
                pulse.beat()
                return errback(*error)

            return connect(failed, *args, **options)

        conn.ensure_connection = functools.partial(
            heard,
            interval_start=CONNECT_AGAIN_SECONDS,
            interval_step=0,
            interval_max=CONNECT_AGAIN_SECONDS,
        )
        return super().ensure_connected(conn)

    def _log_replaced_keys(self, error: Exception) -> None:
        if "WRONGTYPE" not in str(error):
            return
        # Over a connection of its own: what is in use may be in the middle of a reply.
        with self.app.connection_for_read() as connection:
            try:
                for key in replaced_keys(connection.default_channel.client, self.app.amqp.queues):
                    log.error("%s: %s", key.fault, key.remedy)
            except (*connection.connection_errors, *connection.channel_errors) as refusal:
                log.error("which of the broker's keys has a wrong type could not be queried: %s", refusal)

    def _drop(self, message: Any, fault: Rejection) -> None:
        message.reject_log_error(log, self.connection_errors)
        self._dropped.tell(*fault)

    def _tell_of_no_envelope(self, error: Exception) -> None:
        # The place stands for the traceback, whose text may quote the message.
        *_, (frame, line) = traceback.walk_tb(error.__traceback__)
        text = f"it has no readable envelope: {type(error).__name__} at {frame.f_code.co_filename}:{line}"
        self._dropped.tell(DropReason.NO_ENVELOPE, text)


def _let_go(connection: Any) -> None:
    """Close a lost AMQP connection's socket. Celery would say goodbye first, and wait for the answer, twice."""
    established = getattr(connection, "_connection", None)
    collect = getattr(established, "collect", None)  # of py-amqp alone
    if collect is not None:
        with contextlib.suppress(Exception):
            collect()
