"""The sync reader's connections to Redis: few, thin, shared by all threads of the process."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from redis.exceptions import ConnectionError, TimeoutError

from api_client.connection import Connection

MOST_CONNECTIONS: Final = 64
LONGEST_QUEUE_TIMEOUTS: Final = 20


class AllInUse(TimeoutError):
    """No connection was free in time. That says nothing of Redis: those who use them will tell."""


class _Waiter:
    """A thread that waits while all connections are in use: for one of them, or for leave to open one."""

    __slots__ = ("__weakref__", "connection", "woken")

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.woken = threading.Event()


class Connections:
    """A bounded pool. Thread-safe, and without a lock while a connection is idle.

    The connection used last is taken first, so that few stay warm. While others wait, one that is given back goes to
    who has waited longest: a thread that asks again and again would keep it from them. A connection that the server
    has closed meanwhile is replaced and its request sent once more, by another: all that goes through here may be
    repeated. A silence is not.

    Args:
        make: makes a connection of redis-py, not connected.
        timeout_seconds: to connect, for a reply, and to wait for a connection while none is given back at all. While
            some are, a thread waits for its turn, up to 20 times as long.
        most: how many; more threads than this share them.
    """

    def __init__(self, make: Callable[[], Any], *, timeout_seconds: float, most: int = MOST_CONNECTIONS) -> None:
        self._make, self._timeout_seconds, self._most = make, timeout_seconds, most
        self._idle: deque[Connection] = deque()
        self._waiting: deque[_Waiter] = deque()
        self._handed = 0  # counts what shows that Redis answers
        self._era = 0  # connections of an earlier one lead to a node that was left
        self._lock = threading.RLock()
        # A set of what is alive, no count: an interrupt between any two steps loses a connection, and never its place.
        self._open: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._opening: weakref.WeakSet[_Waiter] = weakref.WeakSet()

    def ask(self, request: bytes) -> Any:
        """Send one command and return its reply; an error reply is returned as an exception, not raised.

        Raises:
            redis.exceptions.RedisError: no connection, or no reply on it.
        """
        try:
            connection, is_new = self._idle.pop(), False
        except IndexError:
            connection, is_new = self._wait_or_open()
        while True:
            try:
                reply = connection.ask(request)
            except BaseException as error:
                if not self._may_ask_another(connection, error, is_new=is_new):
                    raise
            else:
                self._give(connection)
                return reply
            connection, is_new = self._wait_or_open()

    def begin(self, request: bytes, count: int) -> Callable[[], list[Any]]:
        """Send ``count`` commands, and return what waits for their replies, as `ask` has them; call it once.

        So several servers can be asked at once by one thread.
        """
        connection, is_new = self._sent(request)

        def finish() -> list[Any]:
            nonlocal connection, is_new
            while True:
                try:
                    replies = connection.receive(count)
                except BaseException as error:
                    if not self._may_ask_another(connection, error, is_new=is_new):
                        raise
                else:
                    self._give(connection)
                    return replies
                connection, is_new = self._sent(request)

        return finish

    def _sent(self, request: bytes) -> tuple[Connection, bool]:
        """Return a connection on which the request has been sent, and whether it is a new one."""
        while True:
            try:
                connection, is_new = self._idle.pop(), False
            except IndexError:
                connection, is_new = self._wait_or_open()
            try:
                connection.send(request)
            except BaseException as error:
                if not self._may_ask_another(connection, error, is_new=is_new):
                    raise
            else:
                return connection, is_new

    def _may_ask_another(self, connection: Connection, error: BaseException, *, is_new: bool) -> bool:
        """Close a connection after an error (an interrupt too: its reply would be taken for the next one's)."""
        self._discard(connection)
        if isinstance(error, ConnectionError | TimeoutError):
            self.drop_idle()  # they may well be as dead as this one
        return isinstance(error, ConnectionError) and not is_new

    def leave(self) -> None:
        """Leave the node: close what is not in use now, and what is as soon as it is given back."""
        with self._lock:
            self._era += 1
        self.drop_idle()

    def drop_idle(self) -> None:
        """Close what is not in use; the next request opens a connection."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return
            self._discard(connection)

    def _give(self, connection: Connection) -> None:
        if connection.era != self._era:
            self._discard(connection)
            return
        if self._waiting and self._hand_over(connection):
            return
        self._idle.append(connection)
        if self._waiting:  # since the first look; who has come after the second finds the connection
            with suppress(IndexError):
                self._give(self._idle.pop())

    def _hand_over(self, connection: Connection | None) -> bool:
        """Give a connection, or its place, to who has waited longest; False where nobody waits any more."""
        with self._lock:
            if not self._waiting:
                return False
            waiter = self._waiting.popleft()
            if connection is None:
                self._opening.add(waiter)
            else:
                self._handed += 1
            waiter.connection = connection
            waiter.woken.set()
            return True

    def _discard(self, connection: Connection) -> None:
        connection.close()
        with self._lock:
            self._open.discard(connection)
            self._hand_over(None)

    def _wait_or_open(self) -> tuple[Connection, bool]:
        """Return a new connection and True; where there are enough, one that is idle or is given back, and False."""
        waiter = _Waiter()
        with self._lock:
            if len(self._open) + len(self._opening) < self._most:
                self._opening.add(waiter)
            else:
                self._waiting.append(waiter)  # before the look at what is idle, for who gives back looks after that
                with suppress(IndexError):
                    connection = self._idle.pop()
                    self._waiting.remove(waiter)
                    return connection, False
        try:
            if waiter not in self._opening:
                self._wait_for_turn(waiter)
            if waiter.connection is not None:
                return waiter.connection, False
            connection = Connection(self._make(), self._timeout_seconds, self._era)
            self._open.add(connection)
        except BaseException:
            self._give_up(waiter)
            raise
        with self._lock:
            self._opening.discard(waiter)
        return connection, True

    def _wait_for_turn(self, waiter: _Waiter) -> None:
        """Wait while connections go round: thousands of threads are a long queue, and nothing is wrong with Redis."""
        for _ in range(LONGEST_QUEUE_TIMEOUTS):
            handed = self._handed
            if waiter.woken.wait(self._timeout_seconds):
                return
            if self._handed == handed:
                break
        self._leave(waiter)

    def _leave(self, waiter: _Waiter) -> None:
        with self._lock:
            if not waiter.woken.is_set():
                self._waiting.remove(waiter)
                raise AllInUse(f"all {self._most} connections are in use, and none came free in time")

    def _give_up(self, waiter: _Waiter) -> None:
        """Let the next one have what a waiter was given and can't use."""
        with self._lock:
            with suppress(ValueError):
                self._waiting.remove(waiter)
            if waiter.connection is not None:
                self._give(waiter.connection)
            elif waiter in self._opening:
                self._opening.discard(waiter)
                self._hand_over(None)
