"""Deliveries over Redis: what could not be acknowledged, or put back, is so later, over the next connection perhaps.

Redis' transport keeps what is not acknowledged in the broker, by a tag that any connection may use. Left alone it is
delivered again only after the visibility timeout, minutes later; closing a lost connection does nothing for it. Where
an acknowledgement fails and the connection goes on, as after a pause of the broker, kombu counts the message as being
worked on for ever: a worker that has lost as many of them as it has slots takes no message any more.
RabbitMQ takes back by itself what a lost connection had not acknowledged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

log: Final = logging.getLogger(__name__)


class UnackedDeliveries:
    """Messages that a worker has taken from Redis and not acknowledged. It stands for the channel in those of tasks.

    ::

        done ────────────▶ its slot is free; acknowledged now, after the next one, or over the next connection
        connection lost ─┬▶ running: as above, when it is done
                         └▶ anything else that was taken: put back into its queue over the next connection

    Args:
        connection: returns the worker's connection; None while there is none.
    """

    no_ack_consumers: None = None
    """Read by kombu's messages: all of ours are acknowledged."""

    def __init__(self, connection: Callable[[], Any]) -> None:
        self._connection = connection
        self._unsettled: dict[str, bool] = {}  # tag: whether it goes back into its queue

    def take_over(self, transport: Any, running: Iterable[str]) -> None:
        """Take over from the channels of a lost connection; ``running`` are the tags of tasks that go on."""
        for channel in transport.channels:
            taken = {*channel.qos._delivered} - channel.qos._dirty  # noqa: SLF001
            self._unsettled |= dict.fromkeys(taken.difference(running), True)

    def settle_over(self, connection: Any) -> None:
        """Settle over a connection what could not be before; raises what the broker raises."""
        if self._unsettled:
            self._settle_all(connection.default_channel.qos)

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:  # noqa: FBT001, FBT002 - as kombu calls it
        """Acknowledge the message of a task that has ended; later, where the broker can't be reached now."""
        self._settle_now_or_later(delivery_tag, requeue=False)

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:  # noqa: FBT001, FBT002 - as kombu calls it
        """Drop a message, or put it back into its queue; later, where the broker can't be reached now."""
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
    # Not by ack() and reject(), which free the slot only where the broker answers.
    if requeue:
        qos.restore_by_tag(tag, leftmost=True)
    else:
        qos._remove_from_indices(tag).execute()  # noqa: SLF001
