"""Wakes those who wait: one subscribed connection a process, a thread that listens while anyone waits.

A notification is a hint to look again, never the answer itself. It can be lost with the connection; whoever waits
polls as well.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import redis

from api_client.clock import monotonic_seconds

log: Final = logging.getLogger(__name__)

IDLE_SECONDS: Final = 5.0
LISTEN_SECONDS: Final = 0.25
RETRY_SECONDS: Final = 1.0


class Notifications:
    """Subscriptions by channel, counted; thread-safe. Without anyone who waits, the connection is closed after 5 s.

    The listening thread opens the connection and closes it, so that no reader waits for a Redis that is silent; those
    who come while it is open write their subscription themselves. After a failure nothing is tried for a second.
    """

    def __init__(self, client: redis.Redis, *, monotonic: Callable[[], float] = monotonic_seconds) -> None:
        self._client, self._monotonic = client, monotonic
        self._lock = threading.RLock()  # writing may connect, and so find out that this node is to be left
        self._waiting: dict[str, list[Callable[[], object]]] = {}
        self._pubsub: Any = None
        self._thread: threading.Thread | None = None
        self._retry_at = 0.0
        self._closed = False

    @contextmanager
    def listening(self, wakes: Mapping[str, Callable[[], object]]) -> Iterator[None]:
        """Have each function called at each notification on its channel, on the listening thread; it must not block.

        Without a connection it just is not called. Many channels are one command.
        """
        with self._lock:
            new = [channel for channel in wakes if channel not in self._waiting]
            for channel, wake in wakes.items():
                self._waiting.setdefault(channel, []).append(wake)
            if self._pubsub is None:
                self._start_listening()
            elif new:
                self._write("subscribe", *new)
        try:
            yield
        finally:
            with self._lock:
                for channel, wake in wakes.items():
                    self._waiting[channel].remove(wake)
                left = [channel for channel in wakes if not self._waiting[channel]]
                for channel in left:
                    del self._waiting[channel]
                if left:
                    self._write("unsubscribe", *left)

    def leave(self) -> None:
        """Leave the node: the master is another one. Those who wait poll, and who comes next listens there."""
        with self._lock:
            self._write("ping")  # as in `close`
            self._pubsub = None

    def close(self) -> None:
        """End the thread, and with it the connection."""
        with self._lock:
            self._closed = True
            # Its answer wakes the thread, which then sees that the connection is not wanted any more.
            self._write("ping")
            self._pubsub = None
        if self._thread is not None:
            self._thread.join(2 * LISTEN_SECONDS)
        self._client.close()

    def _start_listening(self) -> None:
        running = self._thread is not None and self._thread.is_alive()
        if running or self._closed or self._monotonic() < self._retry_at:
            return
        thread = threading.Thread(target=self._listen, name="cache-notifications", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system's limit: those who wait poll
            self._lost(error)
        else:
            self._thread = thread

    def _listen(self) -> None:
        pubsub: Any = self._client.pubsub()  # type: ignore[no-untyped-call]
        try:
            came_before = self._open(pubsub)
            idle_seconds = 0.0
            while idle_seconds < IDLE_SECONDS and self._pubsub is pubsub:
                message = pubsub.get_message(timeout=LISTEN_SECONDS)
                idle_seconds = 0.0 if message or self._waiting else idle_seconds + LISTEN_SECONDS
                if message and (message["type"] == "message" or self._is_late(message, came_before)):
                    self._wake(message["channel"].decode())
        except Exception as error:  # noqa: BLE001 - redis-py raises anything on a connection that is being lost
            self._lost(error)
        finally:
            with self._lock:
                if self._pubsub is pubsub:
                    self._pubsub = None
                pubsub.close()

    @staticmethod
    def _is_late(message: dict[str, Any], came_before: set[str]) -> bool:
        """Tell whether a subscription has taken effect only after those who wait began: they may have missed something.

        That is so for those who came before there was a connection; the others' goes out before they claim.
        """
        if message["type"] != "subscribe" or (channel := message["channel"].decode()) not in came_before:
            return False
        came_before.discard(channel)
        return True

    def _open(self, pubsub: Any) -> set[str]:
        """Connect and subscribe; return the channels that were waited for before."""
        with self._lock:
            known = set(self._waiting)
        if not known:
            return known
        pubsub.subscribe(*known)  # connects, and may take the whole timeout: not under the lock
        with self._lock:
            if not self._closed:
                self._pubsub = pubsub
                if late := self._waiting.keys() - known:
                    self._write("subscribe", *late)
        return known

    def _write(self, command: str, *args: str) -> None:
        if self._pubsub is None:
            return
        try:
            getattr(self._pubsub, command)(*args)
        except Exception as error:  # noqa: BLE001 - as above
            self._lost(error)

    def _lost(self, error: Exception) -> None:
        log.info("notifications are lost (%s); those who wait poll", type(error).__name__)
        self._pubsub = None
        self._retry_at = self._monotonic() + RETRY_SECONDS

    def _wake(self, channel: str) -> None:
        with self._lock:
            for wake in self._waiting.get(channel, ()):
                wake()
