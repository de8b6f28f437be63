"""The sync reader's connections to Redis: a few raw connections, shared by all threads of the process."""

from __future__ import annotations

import socket
import ssl
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from os import getpid
from typing import Any, Final

import hiredis
from redis.exceptions import ConnectionError, TimeoutError

from api_client.protocol.clock import monotonic_seconds
from api_client.transport.sockets import set_io_timeout
from api_client.transport.wire import CHUNK_BYTES, LARGE_CHUNK_BYTES, NEEDS_MORE, reply_reader

MIN_WAIT_SECONDS: Final = 0.05
STALLED_SECONDS: Final = 1.0
"""Grace beyond the timeout for a thread that has its reply, but still waits for the interpreter lock."""
IDLE_SECONDS: Final = 10.0
"""Idle time after which a firewall may have silently dropped the connection."""


class SlowReply(TimeoutError):
    """A reply was incomplete in time, though its bytes kept coming; that says nothing about other keys."""


class Connection:
    """One connection, used by one thread at a time, and unusable after any error.

    Args:
        make: makes a connection of redis-py that is not connected yet, which does TLS, authentication and SELECT.
        timeout_seconds: the time to connect, and the longest silence while a reply is due. After `IDLE_SECONDS` without
            a request it is half of that, with a ConnectionError, because the server may never have received the
            request.
        reply_seconds: the time for one whole reply.
        epoch: the pool's epoch when the connection was begun.

    Attributes:
        is_reused: True if it has answered before; set by the pool, like ``place``.
    """

    def __init__(
        self, make: Callable[[], Any], timeout_seconds: float, reply_seconds: float, epoch: object = None
    ) -> None:
        self.epoch: object = epoch
        self.is_reused: bool = False
        self.place: weakref.ref[Connection] | None = None
        self._made = make()  # closes the socket when it is collected
        self._timeout_seconds, self._reply_seconds = timeout_seconds, reply_seconds
        self._reader = reply_reader()
        self._sent_at = monotonic_seconds()
        self._was_idle = self._is_stalled = False
        self._waits_since: float | None = None

    def connect(self) -> None:
        """Connect to Redis.

        Raises:
            redis.exceptions.RedisError, OSError: the connection can't be made.
        """
        self._made.connect()
        self._socket: socket.socket = self._made._sock  # noqa: SLF001 - redis-py gives it no name; a test holds it
        self._usual_timeout = set_io_timeout(self._socket, self._timeout_seconds, self)
        self._receive = self._socket.recv

    def execute(self, request: bytes) -> Any:
        """Send one command and return its reply; an error reply is returned as an exception.

        Raises:
            redis.exceptions.TimeoutError, redis.exceptions.ConnectionError: there was no reply, and none will come.
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
            return self._receive_rest(began) if reply is NEEDS_MORE else reply
        except (OSError, hiredis.ProtocolError) as error:
            raise self._translated(error) from error

    def send(self, request: bytes) -> None:
        """Send several commands at once; `receive` returns their replies."""
        began = monotonic_seconds()
        self._was_idle = began - self._sent_at > IDLE_SECONDS
        try:
            for start in range(0, len(request), CHUNK_BYTES):  # so that sending a large one is no silence
                self._waits_since = self._sent_at = monotonic_seconds()
                if self._sent_at - began > self._reply_seconds:
                    raise SlowReply("it accepted the request too slowly")
                self._socket.sendall(request[start : start + CHUNK_BYTES])
            self._waits_since = None
        except OSError as error:
            raise self._translated(error) from error

    def receive(self, count: int) -> list[Any]:
        """Return ``count`` replies; the bound on a whole reply applies to each, after the previous one."""
        try:
            self._receive_first()
            return [self._next_reply() for _ in range(count)]
        except (OSError, hiredis.ProtocolError) as error:
            raise self._translated(error) from error

    def close_if_stalled(self) -> None:
        """End, from another thread, a wait that signals have prolonged beyond its timeout."""
        waits_since = self._waits_since
        if waits_since is not None and monotonic_seconds() - waits_since > self._timeout_seconds + STALLED_SECONDS:
            self._is_stalled = True
            with suppress(OSError):  # it has been closed
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self._made.disconnect()

    def _receive_first(self) -> None:
        """Receive the first bytes; a thread that was waiting for another server still takes those that have arrived."""
        bound_seconds = self._timeout_seconds / 2 if self._was_idle else self._timeout_seconds
        left_seconds = self._sent_at + bound_seconds - monotonic_seconds()
        self._socket.settimeout(max(left_seconds, MIN_WAIT_SECONDS))
        self._reader.feed(self._receive_chunk())
        self._socket.settimeout(self._usual_timeout)
        self._was_idle = False

    def _next_reply(self) -> Any:
        reply = self._reader.gets()
        return self._receive_rest(monotonic_seconds()) if reply is NEEDS_MORE else reply

    def _receive_rest(self, began: float) -> Any:
        """Receive until the reply is complete."""
        while True:
            now = monotonic_seconds()
            if now - began > self._reply_seconds:
                raise SlowReply("its reply took too long")
            self._waits_since = now
            self._reader.feed(self._receive_chunk())
            self._waits_since = None
            reply = self._reader.gets()
            if reply is not NEEDS_MORE:
                return reply

    def _receive_chunk(self) -> bytes:
        chunk: bytes = self._receive(LARGE_CHUNK_BYTES)
        if not chunk:
            raise ConnectionResetError("it closed the connection")
        return chunk

    def _translated(self, error: Exception) -> Exception:
        # With the kernel's timeout, silence shows as a read that would block, and an ended wait as a closed connection.
        silence = socket.timeout | BlockingIOError | ssl.SSLWantReadError | ssl.SSLWantWriteError
        if not self._is_stalled and not isinstance(error, silence):
            return ConnectionError(f"{type(error).__name__}: {error}")
        if self._was_idle:
            return ConnectionError("it did not answer after it had been idle")
        return TimeoutError("it did not answer in time")


MAX_CONNECTIONS: Final = 72  # for an application's 64 threads, and a few of its libraries and our own
POLL_SECONDS: Final = 0.05
"""Interval at which a waiting thread looks for a connection itself, since an interrupted thread wakes none."""


class AllInUse(TimeoutError):
    """No connection was free in time; that says nothing about Redis, whose failures the using calls report."""


class Connections:
    """A bounded pool of connections, thread-safe and safe against signal handlers' exceptions at any point.

    No lock guards it, since an exception could leave one held. Its state changes by single operations of C containers,
    and only live objects count as open connections, so an interrupted call loses its connection but never its place.

    The most recently used connection is taken first, so that few stay warm. If the server has closed it, or it is
    silent after a long idle time, it is replaced and the request sent once more, since every command here may be
    repeated. After any other silence nothing is repeated.

    A forked child starts without connections, even after a fork that runs no Python hooks.

    Args:
        make: makes a connection of redis-py that is not connected yet.
        timeout_seconds: the time to connect or to wait for a free connection, and the longest silence within a reply.
        reply_seconds: the time for one whole reply, at least ``timeout_seconds``.
        max_connections: the limit; more threads than that share the connections.
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

    def execute(self, request: bytes) -> Any:
        """Send one command and return its reply; an error reply is returned as an exception, not raised.

        Raises:
            redis.exceptions.RedisError: there was no connection, or no reply on it.
        """
        while True:
            connection = self._acquire()
            try:
                reply = connection.execute(request)
            except BaseException as error:
                if not self._may_repeat(connection, error):
                    raise
            else:
                self._release(connection)
                return reply

    def begin(self, request: bytes, count: int) -> Callable[[], list[Any]]:
        """Send ``count`` commands, and return a function that waits for replies as `execute` does; call it once.

        So one thread can have pending requests at several servers.
        """
        connection = self._send_on_any(request)

        def finish() -> list[Any]:
            nonlocal connection
            while True:
                try:
                    replies = connection.receive(count)
                except BaseException as error:
                    if not self._may_repeat(connection, error):
                        raise
                else:
                    self._release(connection)
                    return replies
                connection = self._send_on_any(request)

        return finish

    def invalidate_connections(self) -> None:
        """Leave the node: close idle connections now, and the rest as soon as they are released."""
        self._epoch = object()
        self.drop_idle()

    def drop_idle(self) -> None:
        """Close idle connections; the next request opens one."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return
            self._discard(connection)

    def _reset(self) -> None:
        self._idle: deque[Connection] = deque()
        self._waiting: deque[threading.Lock] = deque()  # each held until its thread is woken
        self._open: set[weakref.ref[Connection]] = set()
        self._epoch = object()  # connections of an earlier epoch lead to a node that was left
        self._pid = getpid()

    def _acquire(self) -> Connection:
        if self._pid != getpid():
            self._reset()  # the sockets belong to the parent, so only our copies are closed
        try:
            return self._idle.pop()
        except IndexError:
            return self._open_one() or self._wait()

    def _release(self, connection: Connection) -> None:
        connection.is_reused = True
        self._idle.append(connection)
        if connection.epoch is not self._epoch:
            self.drop_idle()
        elif self._waiting:
            self._wake_one()

    def _send_on_any(self, request: bytes) -> Connection:
        """Send a request, and return the connection that carried it."""
        while True:
            connection = self._acquire()
            try:
                connection.send(request)
            except BaseException as error:
                if not self._may_repeat(connection, error):
                    raise
            else:
                return connection

    def _may_repeat(self, connection: Connection, error: BaseException) -> bool:
        """Close a connection after an error or interrupt, since its reply would be mistaken for the next one's."""
        self._discard(connection)
        if isinstance(error, ConnectionError | TimeoutError) and not isinstance(error, SlowReply):
            self.drop_idle()  # they are probably as dead as this one
        return isinstance(error, ConnectionError) and connection.is_reused

    def _discard(self, connection: Connection) -> None:
        self._open.discard(connection.place)  # first, so that the place is free even if the rest is interrupted
        connection.close()
        self._wake_one()

    def _wake_one(self) -> None:
        """Wake the first waiting thread, to look for a connection or for a place to open one."""
        with suppress(IndexError):
            self._waiting.popleft().release()

    def _open_one(self) -> Connection | None:
        """Return a new connection, or None if there are enough."""
        for place in tuple(self._open):
            if place() is None:  # a call was interrupted while it held the place
                self._open.discard(place)
        if len(self._open) >= self._max_connections:
            return None
        connection = Connection(self._make, self._timeout_seconds, self._reply_seconds, self._epoch)
        connection.place = weakref.ref(connection)
        self._open.add(connection.place)
        if len(self._open) > self._max_connections:  # other threads were opening connections too
            self._open.discard(connection.place)
            return None
        try:
            connection.connect()
        except BaseException:
            self._discard(connection)
            raise
        return connection

    def _wait(self) -> Connection:
        """Wait for a released connection, or for a place to open one."""
        deadline = monotonic_seconds() + self._timeout_seconds
        while (left_seconds := deadline - monotonic_seconds()) > 0:
            woken = threading.Lock()
            woken.acquire()
            self._waiting.append(woken)
            try:
                try:
                    return self._idle.pop()  # released since the last look
                except IndexError:
                    if (connection := self._open_one()) is not None:
                        return connection
                woken.acquire(timeout=min(left_seconds, POLL_SECONDS))
            finally:
                with suppress(ValueError):
                    self._waiting.remove(woken)
        raise AllInUse(f"all {self._max_connections} connections are in use, and none became free in time")
