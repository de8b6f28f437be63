"""Free TCP ports of the loopback address."""

from __future__ import annotations

import secrets
import socket
from typing import Final

LOOPBACK: Final = "127.0.0.1"

# Below every system's range for outgoing connections (Linux from 32768, macOS from 49152). Within that range, a client
# that keeps dialling a stopped server's port may connect to itself, and so block the port.
_PORTS = range(15_000, 32_000)


def free_ports(count: int = 1) -> list[int]:
    """Return ``count`` different TCP ports that are free at the loopback address right now.

    They may be taken by the time they are used, so the caller has to try again with others.
    """
    found: list[int] = []
    while len(found) < count:
        port = secrets.choice(_PORTS)
        if port not in found and port_is_free(port):
            found.append(port)
    return found


def port_is_free(port: int) -> bool:
    """Return whether the TCP port can be bound at the loopback address right now."""
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """Return one port as `free_ports` does."""
    return free_ports()[0]
