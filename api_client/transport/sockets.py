"""Socket timeouts: the kernel's, with a watchdog for those that signals prolong, and TCP keepalive."""

from __future__ import annotations

import os
import socket
import ssl
import struct
import threading
import time
import weakref
from collections.abc import Mapping
from typing import Final, Protocol

from api_client.threads import start_thread

CHECK_SECONDS: Final = 0.5
KEEPALIVE_IDLE_SECONDS: Final = 30
KEEPALIVE_INTERVAL_SECONDS: Final = 10
KEEPALIVE_PROBES: Final = 3


class Stallable(Protocol):
    """A connection whose wait a signal may prolong."""

    def close_if_stalled(self) -> None:
        """End the wait, from another thread, where it should have ended by itself long ago. Raises nothing."""


class SocketWatchdog:
    """Ends waits whose SO_RCVTIMEO restarts because of EINTR (PEP 475): after a signal Python receives again.

    Watches each connection for as long as it lives; its thread is there while there is one. `add` is safe against
    exceptions from signal handlers at any point: only the watchdog's own thread takes its lock.
    """

    def __init__(self, *, check_seconds: float = CHECK_SECONDS) -> None:
        self._check_seconds = check_seconds
        # Without callbacks, as a WeakSet has: a signal handler's exception in one would keep the dead there forever.
        self._watched: set[weakref.ref[Stallable]] = set()
        self._running = threading.Lock()
        self.pid: int = os.getpid()

    def add(self, watched: Stallable) -> bool:
        """Watch it from now on; False where the system has no thread left for that."""
        self._watched.add(weakref.ref(watched))  # before the thread is looked at, which looks again without the lock
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
                    self._check()
                    time.sleep(self._check_seconds)
            finally:
                self._running.release()

    def _check(self) -> None:
        for reference in self._watched.copy():
            watched = reference()
            if watched is None:
                self._watched.discard(reference)
            else:
                watched.close_if_stalled()


_watchdog = SocketWatchdog()


def watchdog() -> SocketWatchdog:
    """Return the process's own; a forked child, also of a fork that runs no hooks of Python's, gets another one."""
    global _watchdog  # noqa: PLW0603 - one for each process
    if _watchdog.pid != os.getpid():
        _watchdog = SocketWatchdog()  # its thread is not there, and another one of the parent may have held its lock
    return _watchdog


def set_io_timeout(sock: socket.socket, timeout_seconds: float, watched: Stallable) -> float | None:
    """Bound each send and receive; return what Python's own timeout of the socket is then (None: the kernel's applies).

    Python's costs a poll() before each call, and what has come waits for the interpreter's lock twice. With the
    kernel's a silence is a BlockingIOError, and ``watched`` is given to the watchdog. TLS needs Python's, and so do
    sockets that do not block, as gevent's: the kernel's does nothing there.
    """
    if not isinstance(sock, ssl.SSLSocket):
        sock.settimeout(None)
        if os.get_blocking(sock.fileno()) and watchdog().add(watched):
            bound = struct.pack("@ll", *divmod(max(1, round(timeout_seconds * 1e6)), 1_000_000))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, bound)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, bound)
            return None
    sock.settimeout(timeout_seconds)
    return timeout_seconds


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
