"""The sync reader's connections to Redis: a few raw connections, shared by all threads of the process."""

from __future__ import annotations

import os
import socket
import ssl
import struct
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from os import getpid
from typing import Any, Final, Protocol

import hiredis
from redis.exceptions import ConnectionError, TimeoutError

from api_client.protocol.clock import monotonic_seconds
from api_client.threads import start_thread
from api_client.transport.wire import CHUNK_BYTES, LARGE_CHUNK_BYTES, NEEDS_MORE, reply_reader

LOOK_SECONDS: Final = 0.5
"""Between two looks."""


class Watched(Protocol):
    """What may wait for too long."""

    def end_if_overdue(self) -> None:
        """End the wait, from another thread, where it should have ended by itself long ago. Raises nothing."""


class Watch:
    """Looks after what it is given for as long as that lives. Its thread is there while there is something.

    `add` is safe against exceptions from signal handlers at any point: only the watch's own thread takes its lock.
    """

    def __init__(self, *, look_seconds: float = LOOK_SECONDS) -> None:
        self._look_seconds = look_seconds
        # Without callbacks, as a WeakSet has: a signal handler's exception in one would keep the dead there for ever.
        self._watched: set[weakref.ref[Watched]] = set()
        self._running = threading.Lock()
        self.pid: int = os.getpid()

    def add(self, watched: Watched) -> bool:
        """Look after it from now on; False where the system has no thread left for that."""
        self._watched.add(
            weakref.ref(watched)
        )  # before the look at the thread, which looks again after it has let go of the lock
        if not self._running.locked():
            try:
                start_thread(self._run, "cache-overdue")
            except RuntimeError:
                return False
        return True

    def _run(self) -> None:
        while self._watched and self._running.acquire(blocking=False):
            try:
                while self._watched:
                    self._look()
                    time.sleep(self._look_seconds)
            finally:
                self._running.release()

    def _look(self) -> None:
        for reference in self._watched.copy():
            watched = reference()
            if watched is None:
                self._watched.discard(reference)
            else:
                watched.end_if_overdue()


_watch = Watch()


def watch() -> Watch:
    """Return the process's own; a forked child, also of a fork that runs no hooks of Python's, gets another one."""
    global _watch  # noqa: PLW0603 - one for each process
    if _watch.pid != os.getpid():
        _watch = Watch()  # its thread is not there, and another one of the parent may have held its lock
    return _watch


KEEPALIVE_IDLE_SECONDS: Final = 30
KEEPALIVE_INTERVAL_SECONDS: Final = 10
KEEPALIVE_PROBES: Final = 3


def keepalive_options() -> Mapping[int, int]:
    """Return the socket options of TCP's keepalive: sooner than a firewall forgets a connection on which nothing goes.

    The system's own begins after two hours.
    """
    idle = getattr(socket, "TCP_KEEPIDLE", None) or getattr(socket, "TCP_KEEPALIVE", None)  # Linux, macOS
    wanted = {
        idle: KEEPALIVE_IDLE_SECONDS,
        getattr(socket, "TCP_KEEPINTVL", None): KEEPALIVE_INTERVAL_SECONDS,
        getattr(socket, "TCP_KEEPCNT", None): KEEPALIVE_PROBES,
    }
    return {option: value for option, value in wanted.items() if option is not None}


def give_up_after(sock: socket.socket, timeout_seconds: float, watched: Watched) -> float | None:
    """Bound each send and receive; return what Python's own timeout of the socket is then (None: the kernel's holds).

    Python's costs a poll() before each call, and what has come waits for the interpreter's lock twice. With the
    kernel's, a silence is a BlockingIOError, and ``watched`` is looked after, for signals prolong it. TLS needs
    Python's, and so does who makes no socket that blocks, as gevent: the kernel's does nothing there.
    """
    if not isinstance(sock, ssl.SSLSocket):
        sock.settimeout(None)
        if os.get_blocking(sock.fileno()) and watch().add(watched):
            bound = struct.pack("@ll", *divmod(max(1, round(timeout_seconds * 1e6)), 1_000_000))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, bound)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, bound)
            return None
    sock.settimeout(timeout_seconds)
    return timeout_seconds


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
        self.epoch: object = epoch
        self.is_reused: bool = False
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
