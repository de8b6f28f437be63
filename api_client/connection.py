"""One thin connection to Redis: the socket of redis-py's, with hiredis on it."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from typing import Any, Final

import hiredis
from redis.exceptions import ConnectionError, TimeoutError

from api_client.clock import monotonic_seconds
from api_client.sockets import give_up_after
from api_client.wire import CHUNK_BYTES, LARGE_CHUNK_BYTES, NEEDS_MORE, reply_reader

AT_LEAST_SECONDS: Final = 0.05
OVERDUE_SECONDS: Final = 1.0
"""Beyond the timeout: a thread whose reply is there may wait for the interpreter's lock, and is not ended."""


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
        self._sent_at = 0.0
        self._waits_since: float | None = None
        self._usual_timeout = give_up_after(self._socket, timeout_seconds, self)
        self._receive = self._socket.recv

    def ask(self, request: bytes) -> Any:
        """Send one command and return its reply; an error reply is returned as an exception.

        Raises:
            redis.exceptions.TimeoutError, redis.exceptions.ConnectionError: no reply, and none to be expected.
        """
        self._waits_since = began = monotonic_seconds()
        try:
            self._socket.sendall(request)
            self._reader.feed(self._receive(CHUNK_BYTES))
            self._waits_since = None
            reply = self._reader.gets()
            return self._rest(began) if reply is NEEDS_MORE else reply
        except (OSError, hiredis.ProtocolError) as error:
            raise _translated(error, is_late=self._is_late(began)) from error

    def send(self, request: bytes) -> None:
        """Send several commands at once; `receive` has their replies."""
        self._waits_since = self._sent_at = monotonic_seconds()
        try:
            self._socket.sendall(request)
            self._waits_since = None
        except OSError as error:
            raise _translated(error, is_late=self._is_late(self._sent_at)) from error

    def receive(self, count: int) -> list[Any]:
        """Return ``count`` replies; the timeout is for each, after the one before, or after it was sent."""
        # Whoever has waited for another server meanwhile still takes what is there.
        began = max(self._sent_at, monotonic_seconds() - self._timeout_seconds + AT_LEAST_SECONDS)
        try:
            return [self._next(began)] + [self._next(monotonic_seconds()) for _ in range(count - 1)]
        except (OSError, hiredis.ProtocolError) as error:
            raise _translated(error) from error

    def end_if_overdue(self) -> None:
        """End a wait that signals have prolonged beyond its timeout, from another thread."""
        waits_since = self._waits_since
        if waits_since is not None and self._is_late(waits_since):
            with suppress(OSError):  # it has been closed
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it."""
        self._made.disconnect()

    def _next(self, began: float) -> Any:
        reply = self._reader.gets()
        return self._rest(began) if reply is NEEDS_MORE else reply

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

    def _is_late(self, began: float) -> bool:
        return monotonic_seconds() - began > self._timeout_seconds + OVERDUE_SECONDS


def _translated(error: Exception, *, is_late: bool = False) -> Exception:
    # With the kernel's timeout, a silence is a read that would block. What was ended looks like a closed connection.
    silence = socket.timeout | BlockingIOError | ssl.SSLWantReadError | ssl.SSLWantWriteError
    if is_late or isinstance(error, silence):
        return TimeoutError("it did not answer in time")
    return ConnectionError(f"{type(error).__name__}: {error}")
