"""Tolerance of unreadable envelopes in a worker's connection, each of which is skipped alone.

kombu and py-amqp raise on such a message in the middle of the worker's loop, which ends the connection. Celery makes a
new one, and if that happens often it waits for a second each time, so hundreds would hold a worker up for minutes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from struct import pack
from typing import Any, Final

from redis.exceptions import DataError

UNREADABLE: Final = "application/x-unreadable"
"""Content type given to a RabbitMQ message whose properties can't be read."""

# kombu's errors on a broken envelope: in JSON, in base64, or in their content.
ENVELOPE_ERRORS: Final = (ValueError, TypeError, LookupError, AttributeError, RecursionError, DataError)

Report = Callable[[Exception], None]

_HEADER: Final = 2
# AMQP 0-9-1, 4.2.6.1: class, weight and body size precede the properties; 0x8000 means that there is a content type.
_BEFORE_PROPERTIES: Final = 12
_UNREADABLE_ALONE: Final = pack(">HB", 0x8000, len(UNREADABLE)) + UNREADABLE.encode()


def tolerate_unreadable_envelopes(connection: Any, report: Report, report_wrong_type: Report) -> None:
    """Make a kombu connection, which is not connected yet, skip messages that it can't read.

    On Redis, reading removes a message from its queue, so only ``report`` is called, with the error. On RabbitMQ such a
    message arrives, to be rejected, with only its body and the content type `UNREADABLE`.

    ``report_wrong_type`` is called if a queue's binding on Redis could not be renewed because its key has a wrong type,
    for which kombu would log a traceback each second. Other refusals there are left to kombu.
    """
    make = connection.create_transport

    def create_transport() -> Any:
        transport = make()
        if transport.driver_type == "redis":

            class TolerantChannel(_Tolerant, transport.Channel):  # type: ignore[misc, name-defined]
                pass

            TolerantChannel.report = staticmethod(report)
            TolerantChannel.report_wrong_type = staticmethod(report_wrong_type)
            transport.Channel = TolerantChannel
        elif transport.driver_name == "py-amqp":
            transport.Connection = functools.partial(transport.Connection, frame_handler=_tolerant_frame_handler)
        return transport

    connection.create_transport = create_transport


class _Tolerant:
    """Mixin of a Redis channel, which skips errors between a reply and the message made from it."""

    report: Report
    report_wrong_type: Report
    _is_unpacking = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        channel: Any = self
        parse = channel.client.response_callbacks.get("BRPOP", lambda reply, **_: reply)

        def on_reply(reply: Any, **options: Any) -> Any:
            self._is_unpacking = True
            return parse(reply, **options)

        channel.client.set_response_callback("BRPOP", on_reply)

    def basic_consume(self, *args: Any, callback: Callable[[Any], Any], **options: Any) -> Any:
        def deliver(message: Any) -> Any:
            self._is_unpacking = False
            return callback(message)

        parent: Any = super()
        return parent.basic_consume(*args, callback=deliver, **options)

    def maybe_refresh_binding_expiry(self) -> None:
        channel: Any = self
        parent: Any = super()
        try:
            parent.maybe_refresh_binding_expiry()
        except channel.ResponseError as error:  # an attribute of the object, which super() lacks
            if "WRONGTYPE" not in str(error):
                raise
            self.report_wrong_type(error)

    def _brpop_read(self, **options: Any) -> Any:
        parent: Any = super()
        return self._tolerate(parent._brpop_read, **options)  # noqa: SLF001

    def _deliver_fanout_message(self, message: Any, exchange: str) -> Any:
        self._is_unpacking = True
        parent: Any = super()
        return self._tolerate(parent._deliver_fanout_message, message, exchange)  # noqa: SLF001

    def _tolerate(self, read: Callable[..., Any], *args: Any, **options: Any) -> Any:
        try:
            return read(*args, **options)
        except ENVELOPE_ERRORS as error:
            if not self._is_unpacking:
                raise
            self.report(error)
            return True
        finally:
            self._is_unpacking = False


def _tolerant_frame_handler(connection: Any, take: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return py-amqp's frame handler, changed to read a header with unreadable properties as one without any."""
    from amqp.method_framing import frame_handler  # type: ignore[import-untyped]  # untyped

    has_taken = False

    def take_method(*method: Any) -> Any:
        nonlocal has_taken
        has_taken = True
        return take(*method)

    handle = frame_handler(connection, take_method)

    def on_frame(frame: tuple[int, int, Any]) -> Any:
        nonlocal has_taken
        kind, channel, content = frame
        if kind != _HEADER:
            return handle(frame)
        has_taken = False
        try:
            return handle(frame)
        except Exception:
            if has_taken:
                raise
            return handle((kind, channel, bytes(content[:_BEFORE_PROPERTIES]) + _UNREADABLE_ALONE))

    return on_frame
