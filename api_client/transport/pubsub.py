"""Notifications of commits, over one subscribed connection per process that a thread keeps while there are waiters.

A notification is a hint to read again, never the value. It can be lost with the connection, so waiters also poll.

Only the thread connects, subscribes and keeps track of the waiters, which report to it through a queue. So waiters
never wait for Redis or each other, and a signal handler's exception may interrupt them at any point.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeAlias
from weakref import ref

import redis

from api_client.protocol.clock import monotonic_seconds
from api_client.threads import OwnThread
from api_client.transport.redis_py import open_pubsub

log: Final = logging.getLogger(__name__)

IDLE_SECONDS: Final = 5.0
LISTEN_SECONDS: Final = 0.25
RETRY_SECONDS: Final = 1.0
CONFIRM_SECONDS: Final = 1.0
LATE_SECONDS: Final = 0.002

Wakes: TypeAlias = Mapping[str, Callable[[], object]]


class Listener:
    """A waiter, for as long as this object lives and `close` has not been called."""

    __slots__ = ("__weakref__", "_report", "began_at", "reference", "wakes")

    def __init__(self, wakes: Wakes, began_at: float, report: Callable[[ref[Listener]], object]) -> None:
        self.wakes: Wakes = wakes
        self.began_at: float = began_at
        self._report = report
        # Also called when the object dies, since an exception may have prevented `close`.
        self.reference: ref[Listener] = ref(self, report)

    def close(self) -> None:
        """Stop listening; may be called repeatedly."""
        self._report(self.reference)


class Notifications:
    """Subscriptions by channel. Thread-safe; connection and thread end after 5 s without waiters.

    After a failure nothing is tried for a second. A connection also fails if it does not confirm a subscription in
    time.

    Args:
        client: the client that opens the connection.
        confirm_seconds: the time allowed to confirm a subscription.
        monotonic: the clock, in seconds.
    """

    def __init__(
        self,
        client: redis.Redis,
        *,
        confirm_seconds: float = CONFIRM_SECONDS,
        monotonic: Callable[[], float] = monotonic_seconds,
    ) -> None:
        self._client, self._confirm_seconds, self._monotonic = client, confirm_seconds, monotonic
        self._is_closed = False
        self._begin()

    def _begin(self) -> None:
        """Initialise the state for this process, without waiters."""
        self._changes: SimpleQueue[Listener | ref[Listener]] = SimpleQueue()
        self._thread = OwnThread(self._run, "cache-notifications")
        self._alarm: socket.socket | None = None
        self._epoch = 0
        self._pid = os.getpid()
        # Used only by the thread. Keyed by the id of a listener's weak reference, as a dead one can't be hashed.
        self._channels: dict[int, tuple[str, ...]] = {}
        self._waiting: dict[str, dict[int, ref[Listener]]] = {}
        self._wanted_at = self._connected_at = 0.0

    def listen(self, wakes: Wakes) -> Listener:
        """Call each function at every notification on its channel, until the listener is closed.

        The functions run on the listening thread and must not block. If the subscription comes some time after this
        call, a function is called at that time too, because a notification may have been missed. One command subscribes
        to all channels.
        """
        if self._pid != os.getpid():
            self._begin()
        can = not self._is_closed and self._has_thread()
        listener = Listener(wakes, self._monotonic(), self._changes.put if can else lambda _: None)
        if can:
            self._changes.put(listener)
            self._ring_alarm()
        return listener

    def invalidate_connections(self) -> None:
        """Leave the node after a change of master. Waiters poll until they are subscribed at the new one."""
        self._epoch += 1
        self._ring_alarm()

    def close(self) -> None:
        """End the thread, and the connection with it."""
        self._is_closed = True
        if self._pid == os.getpid():  # otherwise they belong to the parent process
            self._ring_alarm()
            self._thread.join(2 * LISTEN_SECONDS)
        self._client.close()

    def _has_thread(self) -> bool:
        try:
            self._thread.ensure()
        except RuntimeError as error:  # the system's limit on threads; waiters poll
            _log_lost(error)
            return False
        return True

    def _ring_alarm(self) -> None:
        """Make the thread apply the changes at once."""
        alarm = self._alarm
        if alarm is not None:
            with suppress(OSError):  # it has ended, or its buffer is full
                alarm.send(b"!")

    def _run(self) -> None:
        alarmed, alarm = socket.socketpair()
        with alarmed, alarm, selectors.DefaultSelector() as selector:
            alarmed.settimeout(0)
            alarm.settimeout(0)
            selector.register(alarmed, selectors.EVENT_READ)
            self._wanted_at = self._monotonic()
            self._alarm = alarm
            try:
                while not self._is_over():
                    self._listen_on_one(_Wait(selector, alarmed))
            finally:
                self._alarm = None

    def _listen_on_one(self, wait: _Wait) -> None:
        """Listen on one connection while it works and is needed; pause after its loss."""
        epoch = self._epoch
        pubsub = open_pubsub(self._client)
        try:
            subscribed: set[str] = set()
            unconfirmed_since: float | None = None
            while not self._is_over() and self._epoch == epoch:
                if self._subscribe(pubsub, subscribed) and unconfirmed_since is None:
                    unconfirmed_since = self._monotonic()
                wait.until_readable(LISTEN_SECONDS, pubsub)
                while pubsub.subscribed and pubsub.connection.can_read(timeout=0):
                    self._dispatch(pubsub.get_message(timeout=LISTEN_SECONDS))
                    unconfirmed_since = None
                # A silent server accepts requests, so only this shows that no notifications will come.
                if unconfirmed_since is not None and self._monotonic() - unconfirmed_since > self._confirm_seconds:
                    raise redis.TimeoutError("a subscription was not confirmed")
        except Exception as error:  # noqa: BLE001 - redis-py raises anything on a connection that is being lost
            _log_lost(error)
            retry_at = self._monotonic() + RETRY_SECONDS
            while not self._is_over() and (left_seconds := retry_at - self._monotonic()) > 0:
                wait.until_readable(left_seconds)
        finally:
            wait.forget_connection()
            with suppress(Exception):  # as above
                pubsub.close()

    def _is_over(self) -> bool:
        """Apply the waiters' changes; return whether the thread should end."""
        with suppress(Empty):
            while True:
                self._apply(self._changes.get_nowait())
        now = self._monotonic()
        if self._channels:
            self._wanted_at = now
        return self._is_closed or now - self._wanted_at >= IDLE_SECONDS

    def _apply(self, change: Listener | ref[Listener]) -> None:
        if isinstance(change, Listener):
            number = id(change.reference)
            self._channels[number] = tuple(change.wakes)
            for channel in change.wakes:
                self._waiting.setdefault(channel, {})[number] = change.reference
            return
        for channel in self._channels.pop(id(change), ()):
            del self._waiting[channel][id(change)]
            if not self._waiting[channel]:
                del self._waiting[channel]

    def _subscribe(self, pubsub: Any, subscribed: set[str]) -> bool:
        """Subscribe to exactly the waiters' channels; return whether anything changed."""
        new = [channel for channel in self._waiting if channel not in subscribed]
        gone = [channel for channel in subscribed if channel not in self._waiting]
        if new:
            is_first = not subscribed
            pubsub.subscribe(*new)
            if is_first:
                self._connected_at = self._monotonic()
        if gone:
            pubsub.unsubscribe(*gone)
        subscribed.update(new)
        subscribed.difference_update(gone)
        return bool(new or gone)

    def _dispatch(self, message: dict[str, Any] | None) -> None:
        if message is None or message["type"] not in {"message", "subscribe"}:
            return
        came_before = self._monotonic()
        if message["type"] == "subscribe":  # for waiters that may have missed a notification
            came_before = max(self._connected_at, came_before - LATE_SECONDS)
        for reference in list(self._waiting.get(message["channel"].decode(), {}).values()):
            listener = reference()
            if listener is not None and listener.began_at <= came_before:
                listener.wakes[message["channel"].decode()]()


class _Wait:
    """Waits for the alarm or for data on a connection."""

    def __init__(self, selector: selectors.BaseSelector, alarmed: socket.socket) -> None:
        self._selector, self._alarmed = selector, alarmed
        self._connected: Any = None

    def until_readable(self, timeout_seconds: float, pubsub: Any = None) -> None:
        """Block until the alarm, until the connection of ``pubsub`` is readable, or until the timeout."""
        connected = None
        if pubsub is not None and pubsub.subscribed:  # else nothing comes, and a closed one stays readable
            connected = pubsub.connection._sock  # noqa: SLF001 - redis-py gives it no name; a test holds it
        if connected is not self._connected:
            self.forget_connection()
            if connected is not None:
                self._selector.register(connected, selectors.EVENT_READ)
                self._connected = connected
        self._selector.select(timeout_seconds)
        with suppress(BlockingIOError):
            self._alarmed.recv(4096)

    def forget_connection(self) -> None:
        """Wait only for the alarm from now on."""
        if self._connected is not None:
            with suppress(KeyError, ValueError, OSError):  # it was closed
                self._selector.unregister(self._connected)
            self._connected = None


def _log_lost(error: Exception) -> None:
    log.info("lost the pub/sub connection (%s); falling back to polling", type(error).__name__)
