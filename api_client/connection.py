"""One raw connection to Redis: the socket of redis-py's, with hiredis on it."""

from __future__ import annotations

import socket
import ssl
import weakref
from collections.abc import Callable
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
IDLE_SECONDS: Final = 10.0
"""After this long without a request a firewall may have dropped the connection without a word."""


class SlowReply(TimeoutError):
    """A reply was not whole in time, though its bytes kept coming. That says nothing about other keys."""


class Connection:
    """One connection, used by one thread at a time. After any error it can't be used again.

    Args:
        make: makes a connection of redis-py, not connected: it does TLS, authentication and SELECT.
        timeout_seconds: to connect, and for each silence (no byte of what is due). After `IDLE_SECONDS` without a
            request half of it, and a silence is a ConnectionError: the server may never have got the request.
        reply_seconds: for one whole reply.
        epoch: the pool's, when it was begun.

    Attributes:
        is_reused: whether it has answered before. Set by the pool, as is ``place``.
    """

    def __init__(
        self, make: Callable[[], Any], timeout_seconds: float, reply_seconds: float, epoch: object = None
    ) -> None:
        self.epoch, self.is_reused = epoch, False
        self.place: weakref.ref[Connection] | None = None
        self._made = make()  # it closes the socket when it goes
        self._timeout_seconds, self._reply_seconds = timeout_seconds, reply_seconds
        self._reader = reply_reader()
        self._sent_at = monotonic_seconds()
        self._was_idle = self._is_overdue = False
        self._waits_since: float | None = None

    def connect(self) -> None:
        """Connect.

        Raises:
            redis.exceptions.RedisError, OSError: it can't.
        """
        self._made.connect()
        self._socket: socket.socket = self._made._sock  # noqa: SLF001 - redis-py gives it no name; a test holds it
        self._usual_timeout = give_up_after(self._socket, self._timeout_seconds, self)
        self._receive = self._socket.recv

    def ask(self, request: bytes) -> Any:
        """Send one command and return its reply; an error reply is returned as an exception.

        Raises:
            redis.exceptions.TimeoutError, redis.exceptions.ConnectionError: no reply, and none to be expected.
        """
        began = monotonic_seconds()
        if began - self._sent_at > IDLE_SECONDS or len(request) > CHUNK_BYTES:
            self.send(request)
            return self.receive(1)[0]
        self._waits_since = self._sent_at = began
        try:
            self._socket.sendall(request)
            self._reader.feed(self._receive(CHUNK_BYTES))
            self._waits_since = None
            reply = self._reader.gets()
            return self._rest(began) if reply is NEEDS_MORE else reply
        except (OSError, hiredis.ProtocolError) as error:
            raise self._translated(error) from error

    def send(self, request: bytes) -> None:
        """Send several commands at once; `receive` has their replies."""
        began = monotonic_seconds()
        self._was_idle = began - self._sent_at > IDLE_SECONDS
        try:
            for start in range(0, len(request), CHUNK_BYTES):  # so that a large one on its way is no silence
                self._waits_since = self._sent_at = monotonic_seconds()
                if self._sent_at - began > self._reply_seconds:
                    raise SlowReply("it took the request too slowly")
                self._socket.sendall(request[start : start + CHUNK_BYTES])
            self._waits_since = None
        except OSError as error:
            raise self._translated(error) from error

    def receive(self, count: int) -> list[Any]:
        """Return ``count`` replies; the bound on a whole one is for each, after the one before."""
        try:
            self._receive_first()
            return [self._next() for _ in range(count)]
        except (OSError, hiredis.ProtocolError) as error:
            raise self._translated(error) from error

    def end_if_overdue(self) -> None:
        """End a wait that signals have prolonged beyond its timeout, from another thread."""
        waits_since = self._waits_since
        if waits_since is not None and monotonic_seconds() - waits_since > self._timeout_seconds + OVERDUE_SECONDS:
            self._is_overdue = True
            with suppress(OSError):  # it has been closed
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it."""
        self._made.disconnect()

    def _receive_first(self) -> None:
        """Receive what comes first. A thread that has waited for another server meanwhile still takes what is there."""
        bound_seconds = self._timeout_seconds / 2 if self._was_idle else self._timeout_seconds
        left_seconds = self._sent_at + bound_seconds - monotonic_seconds()
        self._socket.settimeout(max(left_seconds, AT_LEAST_SECONDS))
        self._reader.feed(self._received())
        self._socket.settimeout(self._usual_timeout)
        self._was_idle = False

    def _next(self) -> Any:
        reply = self._reader.gets()
        return self._rest(monotonic_seconds()) if reply is NEEDS_MORE else reply

    def _rest(self, began: float) -> Any:
        """Receive until the reply is whole."""
        while True:
            now = monotonic_seconds()
            if now - began > self._reply_seconds:
                raise SlowReply("its reply took too long")
            self._waits_since = now
            self._reader.feed(self._received())
            self._waits_since = None
            reply = self._reader.gets()
            if reply is not NEEDS_MORE:
                return reply

    def _received(self) -> bytes:
        chunk: bytes = self._receive(LARGE_CHUNK_BYTES)
        if not chunk:
            raise ConnectionResetError("it closed the connection")
        return chunk

    def _translated(self, error: Exception) -> Exception:
        # With the kernel's timeout, a silence is a read that would block; a wait that was ended, a closed connection.
        silence = socket.timeout | BlockingIOError | ssl.SSLWantReadError | ssl.SSLWantWriteError
        if not self._is_overdue and not isinstance(error, silence):
            return ConnectionError(f"{type(error).__name__}: {error}")
        if self._was_idle:
            return ConnectionError("it did not answer after it had been idle")
        return TimeoutError("it did not answer in time")
