"""How long a blocking socket waits: the kernel's own timeout, where it can be."""

from __future__ import annotations

import os
import socket
import ssl
import struct
from collections.abc import Mapping
from typing import Final

from api_client.overdue import Watched, watch

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
