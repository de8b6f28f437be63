"""Wakes those who wait: one subscribed connection a process, held by a thread that listens while anyone waits.

A notification is a hint to look again, never the answer itself. It can be lost with the connection; whoever waits
polls as well.

The thread alone connects, subscribes and keeps account of who waits; those who wait tell it by a queue. So they never
wait for Redis, nor for each other, and an exception from a signal handler may leave them at any point.
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
LATE_SECONDS: Final = 0.002

Wakes: TypeAlias = Mapping[str, Callable[[], object]]


class Listener:
    """One who waits: for as long as this object lives, and `close` has not been called."""

    __slots__ = ("__weakref__", "_tell", "began_at", "reference", "wakes")

    def __init__(self, wakes: Wakes, began_at: float, tell: Callable[[ref[Listener]], object]) -> None:
        self.wakes: Wakes = wakes
        self.began_at: float = began_at
        self._tell = tell
        # Told at the object's end, too: an exception may have kept `close` from being called.
        self.reference: ref[Listener] = ref(self, tell)

    def close(self) -> None:
        """Listen no more. May be repeated."""
        self._tell(self.reference)


class Notifications:
    """Subscriptions by channel. Thread-safe; without anyone who waits, connection and thread end after 5 s.

    After a failure nothing is tried for a second.
    """

    def __init__(self, client: redis.Redis, *, monotonic: Callable[[], float] = monotonic_seconds) -> None:
        self._client, self._monotonic = client, monotonic
        self._is_closed = False
        self._begin()

    def _begin(self) -> None:
        """Begin in this process, with nobody who waits."""
        self._told: SimpleQueue[Listener | ref[Listener]] = SimpleQueue()
        self._thread = OwnThread(self._run, "cache-notifications")
        self._alarm: socket.socket | None = None
        self._left = 0
        self._pid = os.getpid()
        # Of the thread alone, by the id of a listener's reference: one that has died can't be hashed.
        self._channels: dict[int, tuple[str, ...]] = {}
        self._waiting: dict[str, dict[int, ref[Listener]]] = {}
        self._wanted_at = self._connected_at = 0.0

    def listen(self, wakes: Wakes) -> Listener:
        """Have each function called at each notification on its channel, until what is returned is closed.

        They are called on the listening thread, and must not block. Where a channel can be heard only some time after
        this call, its function is called then: something may have been missed. Without a connection it just is not
        called. Many channels are one command.
        """
        if self._pid != os.getpid():
            self._begin()
        can = not self._is_closed and self._has_thread()
        listener = Listener(wakes, self._monotonic(), self._told.put if can else _ignore)
        if can:
            self._told.put(listener)
            self._ring()
        return listener

    def leave(self) -> None:
        """Leave the node: the master is another one. Those who wait poll until they are heard of there."""
        self._left += 1
        self._ring()

    def close(self) -> None:
        """End the thread, and with it the connection."""
        self._is_closed = True
        self._ring()
        self._thread.join(2 * LISTEN_SECONDS)
        self._client.close()

    def _has_thread(self) -> bool:
        try:
            self._thread.ensure()
        except RuntimeError as error:  # the system's limit: those who wait poll
            _log_lost(error)
            return False
        return True

    def _ring(self) -> None:
        """Have the thread look at once at what it was told."""
        alarm = self._alarm
        if alarm is not None:
            with suppress(OSError):  # it has ended, or has been rung for often enough
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
                    self._hold(_Wait(selector, alarmed))
            finally:
                self._alarm = None

    def _hold(self, wait: _Wait) -> None:
        """Hold one connection for as long as it is good and wanted; after its loss, pause."""
        left = self._left
        pubsub = open_pubsub(self._client)
        try:
            subscribed: set[str] = set()
            while not self._is_over() and self._left == left:
                self._subscribe(pubsub, subscribed)
                wait.until_readable(LISTEN_SECONDS, pubsub)
                while pubsub.subscribed and pubsub.connection.can_read(timeout=0):
                    self._hear(pubsub.get_message(timeout=LISTEN_SECONDS))
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
        """Take in who has come and gone; tell whether the thread is to end."""
        with suppress(Empty):
            while True:
                self._take_in(self._told.get_nowait())
        now = self._monotonic()
        if self._channels:
            self._wanted_at = now
        return self._is_closed or now - self._wanted_at >= IDLE_SECONDS

    def _take_in(self, told: Listener | ref[Listener]) -> None:
        if isinstance(told, Listener):
            number = id(told.reference)
            self._channels[number] = tuple(told.wakes)
            for channel in told.wakes:
                self._waiting.setdefault(channel, {})[number] = told.reference
            return
        for channel in self._channels.pop(id(told), ()):
            del self._waiting[channel][id(told)]
            if not self._waiting[channel]:
                del self._waiting[channel]

    def _subscribe(self, pubsub: Any, subscribed: set[str]) -> None:
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

    def _hear(self, message: dict[str, Any] | None) -> None:
        if message is None or message["type"] not in {"message", "subscribe"}:
            return
        came_before = self._monotonic()
        if message["type"] == "subscribe":  # of interest to those who may have missed something
            came_before = max(self._connected_at, came_before - LATE_SECONDS)
        for reference in list(self._waiting.get(message["channel"].decode(), {}).values()):
            listener = reference()
            if listener is not None and listener.began_at <= came_before:
                listener.wakes[message["channel"].decode()]()


class _Wait:
    """Waits for the alarm, or for what a connection brings."""

    def __init__(self, selector: selectors.BaseSelector, alarmed: socket.socket) -> None:
        self._selector, self._alarmed = selector, alarmed
        self._connected: Any = None

    def until_readable(self, timeout_seconds: float, pubsub: Any = None) -> None:
        """Return after the alarm, as soon as the connection of ``pubsub`` can be read, or when the time is over."""
        connected = None
        if pubsub is not None and pubsub.subscribed:  # else nothing comes, and its end would be readable for ever
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
        """Wait for the alarm alone."""
        if self._connected is not None:
            with suppress(KeyError, ValueError, OSError):  # it was closed
                self._selector.unregister(self._connected)
            self._connected = None


def _ignore(_: ref[Listener]) -> None:
    pass


def _log_lost(error: Exception) -> None:
    log.info("lost the pub/sub connection (%s); falling back to polling", type(error).__name__)
