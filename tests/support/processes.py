"""Queries about processes of this machine, and code in a forked child of the test."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable

import psutil

LOOPBACK = frozenset({"127.0.0.1", "::1", "::ffff:127.0.0.1"})


def is_gone(pid: int) -> bool:
    """Return whether the process has ended; a zombie has."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def addresses_beyond_loopback(pid: int) -> list[str]:
    """Return every address that the process listens on or is connected to and that is not the loopback's.

    None, if it has ended.
    """
    try:
        connections = psutil.Process(pid).net_connections("inet")
    except psutil.NoSuchProcess:
        return []
    addresses = [end.ip for connection in connections for end in (connection.laddr, connection.raddr) if end]
    return [address for address in addresses if address not in LOOPBACK]


def shown_in_process_list(secret: str) -> list[str]:
    """Return every command line on this machine with ``secret`` in it."""
    lines = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    return [line for line in lines if secret in line]


def run_forked(act: Callable[[], object], *, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Run ``act`` in a forked child, and ``meanwhile`` here; fail with the child's traceback if ``act`` raises."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            act()
            code = 0
        except BaseException:  # noqa: BLE001 - whatever it is, this process ends here
            traceback.print_exc()
        finally:
            os._exit(code)
    try:
        meanwhile()
    finally:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == 0, "what the child raised is on stderr"
