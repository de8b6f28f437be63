"""The sync reader's connections to Redis: a few raw connections, shared by all threads of the process."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from os import getpid
from typing import Any, Final

from redis.exceptions import ConnectionError, TimeoutError

from api_client.clock import monotonic_seconds
from api_client.connection import Connection, SlowReply

MAX_CONNECTIONS: Final = 64
POLL_SECONDS: Final = 0.05
"""How often a waiting thread looks for a connection by itself: an interrupted thread wakes nobody."""


class AllInUse(TimeoutError):
    """No connection was free in time. That says nothing about Redis: the calls that use them report its failures."""


class _Waiter:
    """A thread that waits while all connections are in use, for one of them or for a place to open one."""

    __slots__ = ("connection", "woken")

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.woken = threading.Lock()
        self.woken.acquire()


class Connections:
    """A bounded pool. Thread-safe, and safe against exceptions from signal handlers at any point.

    No lock guards it, since an exception could leave one held. Its state changes by single operations of C containers;
    the open connections are those that are alive, so an interrupted call loses its connection and never the place.

    The connection used last is taken first, so that few stay warm; while threads wait, one that is given back goes to
    the first of them, for a thread that reads again and again would keep it from them. A connection that the server
    has closed meanwhile, or that is silent after it has been idle for long, is replaced and its request sent once more:
    everything sent here may be repeated. Any other silence is not followed by a repeat.

    A forked child, also of a fork that runs no hooks of Python's, starts without connections.

    Args:
        make: makes a connection of redis-py, not connected.
        timeout_seconds: to connect, for each silence of a reply, and to wait for a free connection.
        reply_seconds: for one whole reply, at least ``timeout_seconds``.
        max_connections: the limit; more threads than this share them.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        *,
        timeout_seconds: float,
        reply_seconds: float,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._make, self._timeout_seconds, self._max_connections = make, timeout_seconds, max_connections
        self._reply_seconds = max(timeout_seconds, reply_seconds)
        self._reset()

    def ask(self, request: bytes) -> Any:
        """Send one command and return its reply; an error reply is returned as an exception, not raised.

        Raises:
            redis.exceptions.RedisError: no connection, or no reply on it.
        """
        while True:
            connection = self._take()
            try:
                reply = connection.ask(request)
            except BaseException as error:
                if not self._may_repeat(connection, error):
                    raise
            else:
                self._give_back(connection)
                return reply

    def begin(self, request: bytes, count: int) -> Callable[[], list[Any]]:
        """Send ``count`` commands, and return a function that waits for their replies, as from `ask`; call it once.

        So one thread can have requests under way at several servers.
        """
        connection = self._sent(request)

        def finish() -> list[Any]:
            nonlocal connection
            while True:
                try:
                    replies = connection.receive(count)
                except BaseException as error:
                    if not self._may_repeat(connection, error):
                        raise
                else:
                    self._give_back(connection)
                    return replies
                connection = self._sent(request)

        return finish

    def leave(self) -> None:
        """Leave the node: close what is not in use now, and the rest as soon as it is given back."""
        self._epoch = object()
        self.drop_idle()

    def drop_idle(self) -> None:
        """Close what is not in use; the next request opens a connection."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return
            self._discard(connection)

    def _reset(self) -> None:
        self._idle: deque[Connection] = deque()
        self._waiting: deque[_Waiter] = deque()
        self._open: set[weakref.ref[Connection]] = set()
        self._epoch = object()  # connections of an earlier one lead to a node that was left
        self._pid = getpid()

    def _take(self) -> Connection:
        if self._pid != getpid():
            self._reset()  # the sockets are the parent's; only our copies of them are closed
        try:
            return self._idle.pop()
        except IndexError:
            return self._open_one() or self._wait()

    def _give_back(self, connection: Connection) -> None:
        connection.is_reused = True
        if self._waiting and self._wake(connection):
            return
        self._idle.append(connection)
        if connection.epoch is not self._epoch:
            self.drop_idle()
        elif self._waiting:  # since the first look; a thread that comes after the second finds the connection
            self._wake()

    def _sent(self, request: bytes) -> Connection:
        """Return a connection on which the request has been sent."""
        while True:
            connection = self._take()
            try:
                connection.send(request)
            except BaseException as error:
                if not self._may_repeat(connection, error):
                    raise
            else:
                return connection

    def _may_repeat(self, connection: Connection, error: BaseException) -> bool:
        """Close a connection after an error (an interrupt too: its reply would be taken for the next one's)."""
        self._discard(connection)
        if isinstance(error, ConnectionError | TimeoutError) and not isinstance(error, SlowReply):
            self.drop_idle()  # they may well be as dead as this one
        return isinstance(error, ConnectionError) and connection.is_reused

    def _discard(self, connection: Connection) -> None:
        self._open.discard(connection.place)  # first: the place counts, whatever interrupts the rest
        connection.close()
        self._wake()

    def _wake(self, connection: Connection | None = None) -> bool:
        """Let the first waiting thread have a connection, or look for one; False where none waits."""
        try:
            waiter = self._waiting.popleft()
        except IndexError:
            return False
        waiter.connection = connection
        waiter.woken.release()
        return True

    def _open_one(self) -> Connection | None:
        """Return a new connection; None where there are enough."""
        for place in tuple(self._open):
            if place() is None:  # a call was interrupted while it had it
                self._open.discard(place)
        if len(self._open) >= self._max_connections:
            return None
        connection = Connection(self._make, self._timeout_seconds, self._reply_seconds, self._epoch)
        connection.place = weakref.ref(connection)
        self._open.add(connection.place)
        if len(self._open) > self._max_connections:  # other threads were opening one, too
            self._open.discard(connection.place)
            return None
        try:
            connection.connect()
        except BaseException:
            self._discard(connection)
            raise
        return connection

    def _wait(self) -> Connection:
        """Wait for a connection that is given back, or for a place to open one."""
        deadline = monotonic_seconds() + self._timeout_seconds
        waiter = _Waiter()
        self._waiting.append(waiter)
        try:
            while True:
                try:
                    return self._idle.pop()
                except IndexError:
                    if (connection := self._open_one()) is not None:
                        return connection
                left_seconds = deadline - monotonic_seconds()
                if left_seconds <= 0:
                    raise AllInUse(f"all {self._max_connections} connections are in use, and none came free in time")
                is_woken = waiter.woken.acquire(timeout=min(left_seconds, POLL_SECONDS))
                connection, waiter.connection = waiter.connection, None
                if connection is not None:  # also without being woken, where its giver was interrupted
                    return connection
                if is_woken:
                    self._waiting.appendleft(waiter)
        finally:
            self._end_wait(waiter)

    def _end_wait(self, waiter: _Waiter) -> None:
        """Leave the queue, and what the waiter was given and has not taken to the next one."""
        with suppress(ValueError):
            self._waiting.remove(waiter)
        if waiter.connection is not None:
            self._give_back(waiter.connection)
