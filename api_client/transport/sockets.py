"""Socket timeouts of the kernel, a watchdog for waits that signals prolong, and TCP keepalive."""

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
        """End the wait, from another thread, if it is long overdue. Raises nothing."""


class SocketWatchdog:
    """Ends waits whose SO_RCVTIMEO has restarted because Python receives again after a signal (EINTR, PEP 475).

    It watches each connection as long as that lives, and has a thread while there are any. `add` is safe against signal
    handlers' exceptions at any point, because only the watchdog's own thread takes its lock.
    """

    def __init__(self, *, check_seconds: float = CHECK_SECONDS) -> None:
        self._check_seconds = check_seconds
        # No WeakSet: a signal handler's exception in one of its callbacks would keep a dead reference forever.
        self._watched: set[weakref.ref[Stallable]] = set()
        self._running = threading.Lock()
        self.pid: int = os.getpid()

    def add(self, watched: Stallable) -> bool:
        """Watch a connection from now on; return False if the system has no thread left for that."""
        self._watched.add(weakref.ref(watched))  # before the check of the thread, which looks again without the lock
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
    """Return the process's watchdog; a forked child gets its own, even after a fork that runs no Python hooks."""
    global _watchdog  # noqa: PLW0603 - one for each process
    if _watchdog.pid != os.getpid():
        _watchdog = SocketWatchdog()  # the old one has no thread here, and its lock may have been held in the parent
    return _watchdog


def set_io_timeout(sock: socket.socket, timeout_seconds: float, watched: Stallable) -> float | None:
    """Bound each send and receive; return Python's timeout of the socket (None if the kernel's applies).

    Python's timeout costs a poll() before each call, and a second wait for the interpreter lock. With the kernel's
    timeout silence raises BlockingIOError, and the watchdog watches ``watched``. TLS needs Python's timeout, as do
    non-blocking sockets such as gevent's, on which the kernel's has no effect.
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
    """Return the socket options of TCP keepalive, which probe before a firewall forgets an idle connection.

    The system's default begins after two hours.
    """
    idle = getattr(socket, "TCP_KEEPIDLE", None) or getattr(socket, "TCP_KEEPALIVE", None)  # Linux, macOS
    wanted = {
        idle: KEEPALIVE_IDLE_SECONDS,
        getattr(socket, "TCP_KEEPINTVL", None): KEEPALIVE_INTERVAL_SECONDS,
        getattr(socket, "TCP_KEEPCNT", None): KEEPALIVE_PROBES,
    }
    return {option: value for option, value in wanted.items() if option is not None}
