"""Queries about processes of this machine."""

from __future__ import annotations

import psutil

LOOPBACK = frozenset({"127.0.0.1", "::1", "::ffff:127.0.0.1"})


def is_gone(pid: int) -> bool:
    """Return whether the process has ended; a zombie has."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def addresses_beyond_loopback(pid: int) -> list[str]:
    """Return every address that the process listens on or is connected to and that is not the loopback's."""
    connections = psutil.Process(pid).net_connections("inet")
    addresses = [end.ip for connection in connections for end in (connection.laddr, connection.raddr) if end]
    return [address for address in addresses if address not in LOOPBACK]


def shown_in_process_list(secret: str) -> list[str]:
    """Return every command line on this machine with ``secret`` in it."""
    lines = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    return [line for line in lines if secret in line]
