"""Runner of a program with the restrictions of a systemd unit, or of a container with a read-only root.

::

    python confined.py [--unit FILE] [--writable FOLDER] PROGRAM ARGUMENTS…

``--unit``: its SystemCallFilter=, MemoryDenyWriteExecute= and RestrictAddressFamilies=, as systemd makes seccomp
filters of them. ``--writable``: all file systems are read-only but for this folder, which is empty, and TMPDIR; only as
root. In any case no privileges can be gained, and root has no capabilities.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import os
import re
import socket
import subprocess
from pathlib import Path
from typing import Final

PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
CLONE_NEWNS, MS_PRIVATE_ALL = 0x20000, 0x4000 | 1 << 18
NR_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1
ALLOW: Final = 0x7FFF0000
EQUAL, GREATER, MASKED_EQUAL = 4, 6, 7
PROT_WRITE, PROT_EXEC, SHM_EXEC = 2, 4, 0o100000

libc: Final = ctypes.CDLL(None, use_errno=True)


class Comparison(ctypes.Structure):
    """One condition on an argument of a system call: struct scmp_arg_cmp."""

    _fields_ = (
        ("argument", ctypes.c_uint), ("how", ctypes.c_int), ("first", ctypes.c_uint64), ("second", ctypes.c_uint64)
    )  # fmt: skip


class SystemCalls:
    """A seccomp filter by libseccomp. ``otherwise`` is the action for calls without a rule."""

    def __init__(self, otherwise: int) -> None:
        self._library = ctypes.CDLL("libseccomp.so.2")
        self._library.seccomp_init.restype = ctypes.c_void_p
        self._filter = ctypes.c_void_p(self._library.seccomp_init(otherwise))

    def rule(self, action: int, call: str, *conditions: Comparison) -> None:
        """Add a rule for a call; one that this machine does not have is skipped."""
        number = self._library.seccomp_syscall_resolve_name(call.encode())
        if number >= 0:
            array = (Comparison * len(conditions))(*conditions)
            done(-self._library.seccomp_rule_add_array(self._filter, action, number, len(conditions), array))

    def load(self) -> None:
        """Apply the filter from now on, to executed programs as well."""
        done(-self._library.seccomp_load(self._filter))


def done(error: int) -> None:
    """Raise the error that a call has returned."""
    if error:
        raise OSError(error, os.strerror(error))


def refuse(error: int) -> int:
    """Return the action that makes a call fail with ``error``."""
    return 0x00050000 | error


def directives(unit: Path, name: str) -> list[str]:
    """Return the values of a directive, in their order."""
    return re.findall(rf"^{name}=(.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE)


def call_sets() -> dict[str, list[str]]:
    """Return systemd's sets of system calls, by their names, as it prints them."""
    output = subprocess.run(["systemd-analyze", "syscall-filter"], capture_output=True, text=True, check=True).stdout  # noqa: S607
    sets: dict[str, list[str]] = {}
    for line in output.splitlines():
        if line.startswith("@"):
            members = sets.setdefault(line.strip(), [])
        elif line.startswith(" ") and not line.strip().startswith("#"):
            members.append(line.strip())
    return sets


def expanded(name: str, sets: dict[str, list[str]]) -> set[str]:
    """Return the system calls of a name: itself, or all of a set."""
    return {call for one in sets[name] for call in expanded(one, sets)} if name.startswith("@") else {name}


def allowed_calls(unit: Path) -> set[str]:
    """Return the calls that SystemCallFilter= allows, with those that systemd always allows."""
    sets = call_sets()
    allowed = expanded("@default", sets)
    for value in directives(unit, "SystemCallFilter"):
        named = {call for name in value.lstrip("~").split() for call in expanded(name, sets)}
        allowed = allowed - named if value.startswith("~") else allowed | named
    return allowed


def filter_calls(unit: Path) -> None:
    """Load the unit's filters, the one on the calls themselves last: it refuses to load another."""
    memory = SystemCalls(ALLOW)
    if directives(unit, "MemoryDenyWriteExecute") == ["yes"]:
        both = PROT_WRITE | PROT_EXEC
        memory.rule(refuse(errno.EPERM), "mmap", Comparison(2, MASKED_EQUAL, both, both))
        memory.rule(refuse(errno.EPERM), "mprotect", Comparison(2, MASKED_EQUAL, PROT_EXEC, PROT_EXEC))
        memory.rule(refuse(errno.EPERM), "pkey_mprotect", Comparison(2, MASKED_EQUAL, PROT_EXEC, PROT_EXEC))
        memory.rule(refuse(errno.EPERM), "shmat", Comparison(2, MASKED_EQUAL, SHM_EXEC, SHM_EXEC))
    memory.load()
    families = SystemCalls(ALLOW)
    [allowed] = directives(unit, "RestrictAddressFamilies")
    kept = {int(getattr(socket, name)) for name in allowed.split()}
    for family in set(range(max(kept) + 1)) - kept:
        families.rule(refuse(errno.EAFNOSUPPORT), "socket", Comparison(0, EQUAL, family, 0))
    families.rule(refuse(errno.EAFNOSUPPORT), "socket", Comparison(0, GREATER, max(kept), 0))
    families.load()
    [number] = directives(unit, "SystemCallErrorNumber")
    calls = SystemCalls(refuse(getattr(errno, number)))
    for call in allowed_calls(unit):
        calls.rule(ALLOW, call)
    calls.load()


def set_mounts(folder: str, *, read_only: bool) -> None:
    """Make a file system, and all that are mounted below it, read-only or writable."""
    flags = (0, MOUNT_ATTR_RDONLY) if not read_only else (MOUNT_ATTR_RDONLY, 0)
    attributes = (ctypes.c_uint64 * 4)(flags[0], flags[1], 0, 0)
    size = ctypes.sizeof(attributes)
    if libc.syscall(NR_MOUNT_SETATTR, AT_FDCWD, folder.encode(), AT_RECURSIVE, ctypes.byref(attributes), size):
        done(ctypes.get_errno())


def mount(source: bytes, target: str, kind: bytes | None, flags: int) -> None:
    """Call mount(2)."""
    if libc.mount(source, target.encode(), kind, ctypes.c_ulong(flags), None):
        done(ctypes.get_errno())


def read_only_but_for(writable: str) -> None:
    """Mount as ProtectSystem=strict does: all is read-only but /dev, /proc, /sys and a new ``writable``."""
    if libc.unshare(CLONE_NEWNS):
        done(ctypes.get_errno())
    mount(b"none", "/", None, MS_PRIVATE_ALL)
    set_mounts("/", read_only=True)
    for folder in ("/dev", "/proc", "/sys"):
        set_mounts(folder, read_only=False)
    mount(b"tmpfs", writable, b"tmpfs", 0)
    os.environ["TMPDIR"] = writable


def drop_privileges() -> None:
    """Drop root's capabilities at the next exec, and prevent gaining any."""
    if os.geteuid() == 0:
        last = int(Path("/proc/sys/kernel/cap_last_cap").read_text(encoding="ascii"))
        for capability in range(last + 1):
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        done(ctypes.get_errno())


def main() -> None:
    """Confine this process, and become the program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--unit", type=Path)
    parser.add_argument("--writable")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    chosen = parser.parse_args()
    if chosen.writable:
        read_only_but_for(chosen.writable)
    drop_privileges()
    if chosen.unit:
        filter_calls(chosen.unit)
    os.execvp(chosen.command[0], chosen.command)  # noqa: S606 - a program of the test's


if __name__ == "__main__":
    main()
