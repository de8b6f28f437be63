"""Tolerance of unreadable envelopes in a worker's connection: one that can't be read costs no more than itself.

kombu and py-amqp raise over such a message in the middle of the worker's loop, which ends the connection. Celery makes
a new one, and where that happens often it waits for a second each time: some hundreds would hold a worker up for
minutes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from struct import pack
from typing import Any, Final

from redis.exceptions import DataError

UNREADABLE: Final = "application/x-unreadable"
"""The content type given to a message of RabbitMQ whose properties can't be read."""

# What kombu raises over a broken envelope: JSON, base64, or what is inside of them.
ENVELOPE_ERRORS: Final = (ValueError, TypeError, LookupError, AttributeError, RecursionError, DataError)

Report = Callable[[Exception], None]

_HEADER: Final = 2
# AMQP 0-9-1, 4.2.6.1: class, weight and size of the body stand before the properties; 0x8000: there is a content type.
_BEFORE_PROPERTIES: Final = 12
_UNREADABLE_ALONE: Final = pack(">HB", 0x8000, len(UNREADABLE)) + UNREADABLE.encode()


def tolerate_unreadable_envelopes(connection: Any, report: Report, report_wrong_type: Report) -> None:
    """Have a connection of kombu's, which is not connected yet, skip messages that it can't read.

    On Redis, reading takes a message from its queue, so ``report`` is called with what was raised, and that is all. On
    RabbitMQ such a message arrives, to be rejected, with nothing but its body and the content type `UNREADABLE`.

    ``report_wrong_type`` is called where a queue's binding on Redis could not be renewed because its key has a wrong
    type; kombu would log a traceback each second. Whatever else is refused there is left to kombu.
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
    """The part of a Redis channel that skips what was raised between a reply and the message made of it."""

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
        except channel.ResponseError as error:  # an attribute of the object: super() has none
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
    """Return py-amqp's handler of frames, which reads a header of unreadable properties as one that has none."""
    from amqp.method_framing import frame_handler  # type: ignore[import-untyped]  # it has no types

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
