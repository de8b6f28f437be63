"""How long a blocking socket waits: the kernel's own timeout, where it can be."""

from __future__ import annotations

import os
import socket
import ssl
import struct

from api_client.overdue import Watched, watch


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
