"""Deliveries over Redis, which are acknowledged or put back later, perhaps over the next connection, if they failed.

Redis' transport keeps unacknowledged messages in the broker, under a tag that any connection may use. Left alone they
are redelivered only after the visibility timeout, minutes later, even if a lost connection is closed. If an
acknowledgement fails and the connection goes on, as after a pause of the broker, kombu counts the message as in
progress forever: a worker with as many of these as slots takes no more messages. RabbitMQ by itself takes back the
unacknowledged messages of a lost connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

log: Final = logging.getLogger(__name__)


class UnackedDeliveries:
    """Messages that a worker has taken from Redis and not acknowledged; takes the channel's place in tasks' messages.

    ::

        done ────────────▶ its slot is free; acknowledged now, after the next one, or over the next connection
        connection lost ─┬▶ running: as above, when done
                         └▶ other messages: put back into their queues over the next connection

    Args:
        connection: returns the worker's connection; None while there is none.
    """

    no_ack_consumers: None = None
    """Read by kombu's messages; empty, since all of ours are acknowledged."""

    def __init__(self, connection: Callable[[], Any]) -> None:
        self._connection = connection
        self._unsettled: dict[str, bool] = {}  # by tag: whether the message goes back into its queue

    def take_over(self, transport: Any, running: Iterable[str]) -> None:
        """Take over the messages of a lost connection's channels; ``running`` are the tags of tasks that go on."""
        for channel in transport.channels:
            taken = {*channel.qos._delivered} - channel.qos._dirty  # noqa: SLF001
            self._unsettled |= dict.fromkeys(taken.difference(running), True)

    def settle_over(self, connection: Any) -> None:
        """Settle, over a connection, messages that could not be settled before; the broker's errors pass through."""
        if self._unsettled:
            self._settle_all(connection.default_channel.qos)

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:  # noqa: FBT001, FBT002 - as kombu calls it
        """Acknowledge the message of a finished task, or do so later if the broker is unreachable."""
        self._settle_now_or_later(delivery_tag, requeue=False)

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:  # noqa: FBT001, FBT002 - as kombu calls it
        """Drop a message or put it back into its queue, or do so later if the broker is unreachable."""
        self._settle_now_or_later(delivery_tag, requeue=requeue)

    def _settle_now_or_later(self, tag: str, *, requeue: bool) -> None:
        self._unsettled[tag] = requeue
        try:
            connection = self._connection()
            if connection is not None:
                qos = connection.default_channel.qos
                _free_slot(qos, tag)
                self._settle_all(qos)
        except Exception as error:  # noqa: BLE001 - what lasts, the loop meets, too, and connects anew
            log.warning("a message could not be acknowledged yet: %s", type(error).__name__)

    def _settle_all(self, qos: Any) -> None:
        for tag, requeue in list(self._unsettled.items()):
            _settle(qos, tag, requeue=requeue)
            self._unsettled.pop(tag, None)


def _free_slot(qos: Any, tag: str) -> None:
    if tag in qos._delivered:  # noqa: SLF001 - else another connection took it
        qos._quick_ack(tag)  # noqa: SLF001


def _settle(qos: Any, tag: str, *, requeue: bool) -> None:
    # Not with ack() and reject(), which free the slot only if the broker answers.
    if requeue:
        qos.restore_by_tag(tag, leftmost=True)
    else:
        qos._remove_from_indices(tag).execute()  # noqa: SLF001
