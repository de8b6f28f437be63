"""The sync reader's connections to Redis: few, thin, shared by all threads of the process."""

from __future__ import annotations

import socket
import ssl
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import hiredis
from redis.exceptions import ConnectionError, TimeoutError

from api_client.clock import monotonic_seconds
from api_client.sockets import give_up_after
from api_client.wire import CHUNK_BYTES, LARGE_CHUNK_BYTES, NEEDS_MORE, reply_reader

MOST_CONNECTIONS: Final = 64
LONGEST_QUEUE_TIMEOUTS: Final = 20


class AllInUse(TimeoutError):
    """No connection was free in time. That says nothing of Redis: those who use them will tell."""


class Connection:
    """One connection, used by one thread at a time. After any error it can't be used again.

    Args:
        made: a connection of redis-py, not connected yet: it does TLS, authentication and SELECT.
        timeout_seconds: for a whole reply.
        era: the pool's, when it was begun.

    Raises:
        redis.exceptions.RedisError, OSError: it could not be made.
    """

    def __init__(self, made: Any, timeout_seconds: float, era: int = 0) -> None:
        made.connect()
        self.era = era
        self._made = made  # it closes the socket when it goes
        self._socket: socket.socket = made._sock  # noqa: SLF001 - redis-py gives it no name; a test holds it
        self._timeout_seconds = timeout_seconds
        self._reader = reply_reader()
        self._usual_timeout = give_up_after(self._socket, timeout_seconds)
        self._receive = self._socket.recv

    def ask(self, request: bytes) -> Any:
        """Send one command and return its reply; an error reply is returned as an exception.

        Raises:
            redis.exceptions.TimeoutError, redis.exceptions.ConnectionError: no reply, and none to be expected.
        """
        began = monotonic_seconds()
        try:
            self._socket.sendall(request)
            self._reader.feed(self._receive(CHUNK_BYTES))
            reply = self._reader.gets()
            return self._rest(began) if reply is NEEDS_MORE else reply
        except (OSError, hiredis.ProtocolError) as error:
            raise _translated(error) from error

    def ask_all(self, request: bytes, count: int) -> list[Any]:
        """Send ``count`` commands at once and return their replies; the timeout is for each, after the one before."""
        try:
            self._socket.sendall(request)
            return [self._next() for _ in range(count)]
        except (OSError, hiredis.ProtocolError) as error:
            raise _translated(error) from error

    def close(self) -> None:
        """Close it."""
        self._made.disconnect()

    def _next(self) -> Any:
        reply = self._reader.gets()
        return self._rest(monotonic_seconds()) if reply is NEEDS_MORE else reply

    def _rest(self, began: float) -> Any:
        """Receive until the reply is whole, within the timeout: a server that trickles must not hold a reader."""
        deadline = began + self._timeout_seconds
        try:
            while (left_seconds := deadline - monotonic_seconds()) > 0:
                self._socket.settimeout(left_seconds)
                chunk = self._receive(LARGE_CHUNK_BYTES)
                if not chunk:
                    raise ConnectionResetError("it closed the connection")
                self._reader.feed(chunk)
                reply = self._reader.gets()
                if reply is not NEEDS_MORE:
                    return reply
        finally:
            self._socket.settimeout(self._usual_timeout)
        raise TimeoutError("it did not answer in time")


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

    def ask(self, request: bytes, count: int = 0) -> Any:
        """Send one command and return its reply, or ``count`` commands and return the list of their replies.

        An error reply is returned as an exception, not raised.

        Raises:
            redis.exceptions.RedisError: no connection, or no reply on it.
        """
        try:
            connection, is_new = self._idle.pop(), False
        except IndexError:
            connection, is_new = self._wait_or_open()
        while True:
            try:
                reply = connection.ask_all(request, count) if count else connection.ask(request)
            except BaseException as error:  # an interrupt too: its reply would be taken for the next one's
                self._discard(connection)
                if isinstance(error, ConnectionError | TimeoutError):
                    self.drop_idle()  # they may well be as dead as this one
                if is_new or not isinstance(error, ConnectionError):
                    raise
            else:
                self._give(connection)
                return reply
            connection, is_new = self._wait_or_open()

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


def _translated(error: Exception) -> Exception:
    # With the kernel's timeout, a silence is a read that would block.
    if isinstance(error, socket.timeout | BlockingIOError | ssl.SSLWantReadError | ssl.SSLWantWriteError):
        return TimeoutError("it did not answer in time")
    return ConnectionError(f"{type(error).__name__}: {error}")
