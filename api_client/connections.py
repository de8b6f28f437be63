"""The sync reader's connections to Redis: few, thin, shared by all threads of the process."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import hiredis
from redis.exceptions import ConnectionError, TimeoutError

from api_client.clock import monotonic_seconds
from api_client.wire import CHUNK_BYTES, LARGE_CHUNK_BYTES, NEEDS_MORE, reply_reader

MOST_CONNECTIONS: Final = 64


class Connection:
    """One connection, used by one thread at a time. After any error it can't be used again.

    Args:
        made: a connection of redis-py, not connected yet: it does TLS, authentication and SELECT.
        timeout_seconds: for a whole reply.

    Raises:
        redis.exceptions.RedisError, OSError: it could not be made.
    """

    def __init__(self, made: Any, timeout_seconds: float) -> None:
        made.connect()
        self._made = made  # it closes the socket when it goes
        self._socket: socket.socket = made._sock  # noqa: SLF001 - redis-py gives it no name; a test holds it
        self._timeout_seconds = timeout_seconds
        self._reader = reply_reader()
        if not isinstance(self._socket, ssl.SSLSocket):
            # The kernel's timeout instead of Python's, which costs a poll() before each call.
            bound = struct.pack("@ll", *divmod(max(1, round(timeout_seconds * 1e6)), 1_000_000))
            self._socket.settimeout(None)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, bound)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, bound)
        self._receive = self._socket.recv

    def ask(self, request: bytes) -> Any:
        """Send one command and return its reply; an error reply is returned as an exception.

        Raises:
            redis.exceptions.TimeoutError, redis.exceptions.ConnectionError: no reply, and none to be expected.
        """
        try:
            self._socket.sendall(request)
            self._reader.feed(self._receive(CHUNK_BYTES))
            reply = self._reader.gets()
            return self._rest() if reply is NEEDS_MORE else reply
        except (OSError, hiredis.ProtocolError) as error:
            raise _translated(error) from error

    def ask_all(self, request: bytes, count: int) -> list[Any]:
        """Send ``count`` commands at once and return their replies."""
        try:
            self._socket.sendall(request)
            return [self._rest() if (reply := self._reader.gets()) is NEEDS_MORE else reply for _ in range(count)]
        except (OSError, hiredis.ProtocolError) as error:
            raise _translated(error) from error

    def close(self) -> None:
        """Close it."""
        self._made.disconnect()

    def _rest(self) -> Any:
        """Receive until the reply is whole, within the timeout: a server that trickles must not hold a reader."""
        deadline = monotonic_seconds() + self._timeout_seconds
        while True:
            chunk = self._receive(LARGE_CHUNK_BYTES)
            if not chunk:
                raise ConnectionResetError("it closed the connection")
            self._reader.feed(chunk)
            reply = self._reader.gets()
            if reply is not NEEDS_MORE:
                return reply
            if monotonic_seconds() >= deadline:
                raise TimeoutError("it did not answer in time")


class Connections:
    """A bounded pool. Thread-safe, and without a lock while a connection is idle.

    The connection used last is taken first, so that few stay warm. A connection that the server has closed meanwhile
    is replaced and its request sent once more: all that goes through here may be repeated. A silence is not.

    Args:
        make: makes a connection of redis-py, not connected.
        timeout_seconds: to connect, for a reply, and to wait for a connection while all are in use.
        most: how many; more threads than this share them.
    """

    def __init__(self, make: Callable[[], Any], *, timeout_seconds: float, most: int = MOST_CONNECTIONS) -> None:
        self._make, self._timeout_seconds, self._most = make, timeout_seconds, most
        self._idle: deque[Connection] = deque()
        self._returned = threading.Condition(threading.Lock())
        self._open = self._waiting = 0

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
        try:
            reply = connection.ask_all(request, count) if count else connection.ask(request)
        except BaseException as error:  # an interrupt too: its reply would be taken for the next one's
            self._discard(connection)
            if isinstance(error, ConnectionError | TimeoutError):
                self.drop_idle()  # they may well be as dead as this one
            if is_new or not isinstance(error, ConnectionError):
                raise
            return self.ask(request, count)
        self._give(connection)
        return reply

    def drop_idle(self) -> None:
        """Close what is not in use; the next request opens a connection."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return
            self._discard(connection)

    def _give(self, connection: Connection) -> None:
        self._idle.append(connection)
        if self._waiting:
            with self._returned:
                self._returned.notify()

    def _discard(self, connection: Connection) -> None:
        connection.close()
        with self._returned:
            self._open -= 1
            self._returned.notify()

    def _wait_or_open(self) -> tuple[Connection, bool]:
        """Return an idle connection, or a new one and True."""
        deadline = monotonic_seconds() + self._timeout_seconds
        with self._returned:
            self._waiting += 1  # before it looks: who gives one back after that look notifies
            try:
                while self._open >= self._most:
                    if self._idle:
                        with suppress(IndexError):  # a thread that has just come may take it without the lock
                            return self._idle.pop(), False
                    if not self._returned.wait(deadline - monotonic_seconds()):
                        raise TimeoutError(f"all {self._most} connections were in use")
                self._open += 1
            finally:
                self._waiting -= 1
        try:
            return Connection(self._make(), self._timeout_seconds), True
        except BaseException:
            with self._returned:
                self._open -= 1
                self._returned.notify()
            raise


def _translated(error: Exception) -> Exception:
    # With the kernel's timeout, a silence is a read that would block.
    if isinstance(error, socket.timeout | BlockingIOError | ssl.SSLWantReadError | ssl.SSLWantWriteError):
        return TimeoutError("it did not answer in time")
    return ConnectionError(f"{type(error).__name__}: {error}")
