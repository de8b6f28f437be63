"""Requests to workers, for which kombu's Redis transport needs some care."""

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
        """The same of kombu's."""

        def __call__(self, connection: Any) -> Any: ...
else:
    _Control, _Mailbox = Control, Mailbox


class PrivateMailbox(_Mailbox):
    """Replies to each request in a queue of its own.

    kombu names the queue by a mailbox's address in memory, which the next request's mailbox may get: a late reply to
    one request would end the next.
    """

    oid = ""

    def __call__(self, connection: Any) -> Any:
        """Return a mailbox for one request."""
        mailbox = super().__call__(connection)
        mailbox.oid = uuid()
        return mailbox


class PrivateControl(_Control):
    """Workers' replies, each request's over a connection of its own.

    On Redis a connection still listens when the wait for replies is over. A late one would end the next request over
    this connection, and kombu would put it back: into a queue that nobody knows, by commands that the users of
    deploy/redis lack. Besides, what listens redelivers messages that workers have not acknowledged.
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
    """Drop the link of a BRPOP that is under way: closing it would wait for its reply."""
    if connection.connected and (client := getattr(connection.default_channel, "client", None)):
        client.connection.disconnect()
