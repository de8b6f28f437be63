"""How long a blocking socket waits: the kernel's own timeout, where it can be."""

from __future__ import annotations

import socket
import ssl
import struct


def give_up_after(sock: socket.socket, timeout_seconds: float) -> float | None:
    """Bound each send and receive; return what Python's own timeout of the socket is then (None: the kernel's holds).

    Python's costs a poll() before each call, and what has come waits for the interpreter's lock twice. With the
    kernel's, a silence is a BlockingIOError. TLS needs Python's.
    """
    if isinstance(sock, ssl.SSLSocket):
        sock.settimeout(timeout_seconds)
        return timeout_seconds
    bound = struct.pack("@ll", *divmod(max(1, round(timeout_seconds * 1e6)), 1_000_000))
    sock.settimeout(None)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, bound)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, bound)
    return None
