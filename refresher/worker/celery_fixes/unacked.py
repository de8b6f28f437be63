"""Deliveries of Redis connections that were lost: acknowledged, or put back, over the next connection.

Redis' transport keeps what is not acknowledged in the broker, by a tag that any connection may use. Left alone it is
delivered again only after the visibility timeout, minutes later; closing a lost connection does nothing for it.
RabbitMQ takes back by itself what a lost connection had not acknowledged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

log: Final = logging.getLogger(__name__)


class UnackedDeliveries:
    """The deliveries of lost connections. It stands for their channel in the messages of tasks that still run.

    ::

        loss ──▶ running: acknowledged when it ends, over the connection that there is then, or the next
             └─▶ anything else that was taken: put back into its queue over the next connection

    Args:
        connection: returns the worker's connection; None while there is none.
    """

    no_ack_consumers: None = None
    """Read by kombu's messages: all of ours are acknowledged."""

    def __init__(self, connection: Callable[[], Any]) -> None:
        self._connection = connection
        self._unsettled: dict[str, bool] = {}  # tag: whether it goes back into its queue

    def take_over(self, transport: Any, running: Iterable[Any]) -> None:
        """Take over from the channels of a lost connection; ``running`` are the messages of tasks that go on."""
        taken = {tag for channel in transport.channels for tag in {*channel.qos._delivered} - channel.qos._dirty}  # noqa: SLF001
        for message in running:
            if message.delivery_tag in taken:
                taken.discard(message.delivery_tag)
                message.channel = self
        self._unsettled |= dict.fromkeys(taken, True)

    def settle_over(self, connection: Any) -> None:
        """Settle over a new connection what could not be over the one before; raises what the broker raises."""
        if not self._unsettled:
            return
        qos = connection.default_channel.qos
        for tag, requeue in list(self._unsettled.items()):
            _settle(qos, tag, requeue=requeue)
            del self._unsettled[tag]

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:  # noqa: FBT001, FBT002 - as kombu calls it
        """Acknowledge the message of a task that has ended; later, where the broker can't be reached now."""
        self._settle_now_or_later(delivery_tag, requeue=False)

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:  # noqa: FBT001, FBT002 - as kombu calls it
        """Drop a message, or put it back into its queue; later, where the broker can't be reached now."""
        self._settle_now_or_later(delivery_tag, requeue=requeue)

    def _settle_now_or_later(self, tag: str, *, requeue: bool) -> None:
        try:
            connection = self._connection()
            if connection is not None:
                _settle(connection.default_channel.qos, tag, requeue=requeue)
                return
        except Exception as error:  # noqa: BLE001 - the loop meets it too, and connects anew
            log.info("a message is acknowledged over the next connection: %s", type(error).__name__)
        self._unsettled[tag] = requeue


def _settle(qos: Any, tag: str, *, requeue: bool) -> None:
    # Not by ack() and reject(), which count what this channel has taken.
    if requeue:
        qos.restore_by_tag(tag, leftmost=True)
    else:
        qos._remove_from_indices(tag).execute()  # noqa: SLF001
