"""Control requests to workers, with workarounds for kombu's Redis transport."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from celery.app.control import Control
from kombu.pidbox import Mailbox
from kombu.utils.uuid import uuid

from api_client.config.broker_url import is_rabbitmq

if TYPE_CHECKING:

    class _Control:
        """The part in use of Celery's class, which has no types."""

        app: Any

        def broadcast(self, *args: Any, **options: Any) -> Any: ...

    class _Mailbox:
        """The part of kombu's class in use here."""

        def __call__(self, connection: Any) -> Any: ...
else:
    _Control, _Mailbox = Control, Mailbox


class PrivateMailbox(_Mailbox):
    """A mailbox with a reply queue of its own for each request.

    kombu names the queue after a mailbox's memory address, which the next request's mailbox may get too: a late reply
    to one request would then end the next.
    """

    oid = ""

    def __call__(self, connection: Any) -> Any:
        """Return a mailbox for one request."""
        mailbox = super().__call__(connection)
        mailbox.oid = uuid()
        return mailbox


class PrivateControl(_Control):
    """Control of workers, with a connection of its own for each request that awaits replies.

    On Redis a connection still listens after the wait for replies. A late reply would end the next request over this
    connection, and kombu would put it back into a queue that nobody knows, with commands that the users of deploy/redis
    lack. A listening connection also redelivers messages that workers have not acknowledged.
    """

    Mailbox = PrivateMailbox

    def broadcast(self, *args: Any, connection: Any = None, reply: bool = False, **options: Any) -> Any:
        """Send a command to workers; return their replies if ``reply``."""
        if connection is not None or not reply:
            return super().broadcast(*args, connection=connection, reply=reply, **options)
        own = self.app.connection_for_write()
        if not is_rabbitmq(own.as_uri()):
            own.transport_options["ack_emulation"] = False
        try:
            return super().broadcast(*args, connection=own, reply=True, **options)
        finally:
            with suppress(Exception):
                _stop_listening(own)
            with suppress(Exception):
                own.close()


def _stop_listening(connection: Any) -> None:
    """Drop the connection of a pending BRPOP, since closing it would wait for the reply."""
    if connection.connected and (client := getattr(connection.default_channel, "client", None)):
        client.connection.disconnect()
