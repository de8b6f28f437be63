"""How a worker's connection reads messages: one whose envelope can't be read costs no more than itself.

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
"""The content type that a message of RabbitMQ has here whose properties can't be read."""

# What kombu raises over an envelope that is none: JSON, base64, or what is inside of them.
ENVELOPE_ERRORS: Final = (ValueError, TypeError, LookupError, AttributeError, RecursionError, DataError)

_HEADER: Final = 2
# AMQP 0-9-1, 4.2.6.1: class, weight and size of the body stand before the properties; 0x8000: there is a content type.
_BEFORE_PROPERTIES: Final = 12
_UNREADABLE_ALONE: Final = pack(">HB", 0x8000, len(UNREADABLE)) + UNREADABLE.encode()


def tolerate_unreadable_envelopes(
    connection: Any, tell: Callable[[Exception], None], on_wrong_type: Callable[[Exception], None]
) -> None:
    """Have a connection of kombu's, which is not connected yet, pass over messages that it can't read.

    On Redis, reading takes a message from its queue: ``tell`` is called with what was raised, and that is all. On
    RabbitMQ such a message comes like others, to be rejected: with nothing but its body and the content type
    `UNREADABLE`.

    ``on_wrong_type`` is called where a queue's binding on Redis could not be renewed because its key has a wrong type;
    kombu would log a traceback each second. Whatever else is refused there is left to kombu.
    """
    make = connection.create_transport

    def create_transport() -> Any:
        transport = make()
        if transport.driver_type == "redis":
            transport.Channel = _reporting(_forgiving(transport.Channel, tell), on_wrong_type)
        elif transport.driver_name == "py-amqp":
            transport.Connection = functools.partial(transport.Connection, frame_handler=_forgiving_frames)
        return transport

    connection.create_transport = create_transport


def _reporting(channel_class: Any, on_wrong_type: Callable[[Exception], None]) -> type:
    """Return a class of Redis channels that report a binding whose key has a wrong type."""

    class ReportingChannel(channel_class):  # type: ignore[misc]
        def maybe_refresh_binding_expiry(self) -> None:
            try:
                super().maybe_refresh_binding_expiry()
            except self.ResponseError as error:
                if "WRONGTYPE" not in str(error):
                    raise
                on_wrong_type(error)

    return ReportingChannel


def _forgiving(channel_class: Any, tell: Callable[[Exception], None]) -> type:
    """Return a class of Redis channels that pass over what was raised between a reply and the message made of it."""

    class ForgivingChannel(channel_class):  # type: ignore[misc]
        _unpacks = False

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            take = self.client.response_callbacks.get("BRPOP", lambda reply, **_: reply)

            def came(reply: Any, **options: Any) -> Any:
                self._unpacks = True
                return take(reply, **options)

            self.client.set_response_callback("BRPOP", came)

        def basic_consume(self, *args: Any, callback: Callable[[Any], Any], **options: Any) -> Any:
            def hand_on(message: Any) -> Any:
                self._unpacks = False
                return callback(message)

            return super().basic_consume(*args, callback=hand_on, **options)

        def _brpop_read(self, **options: Any) -> Any:
            return self._forgive(super()._brpop_read, **options)

        def _deliver_fanout_message(self, message: Any, exchange: str) -> Any:
            self._unpacks = True
            return self._forgive(super()._deliver_fanout_message, message, exchange)

        def _forgive(self, read: Callable[..., Any], *args: Any, **options: Any) -> Any:
            try:
                return read(*args, **options)
            except ENVELOPE_ERRORS as error:
                if not self._unpacks:
                    raise
                tell(error)
                return True
            finally:
                self._unpacks = False

    return ForgivingChannel


def _forgiving_frames(connection: Any, take: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return py-amqp's handler of frames, for which a header whose properties can't be read is one that has none."""
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
