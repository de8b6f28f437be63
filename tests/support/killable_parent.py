"""A process that starts guarded ones, prints them, and waits to be killed: ``python -m tests.support.killable_parent``.

Its first line of output is JSON: ``server`` (a Redis), ``family`` (a guarded program's pid and its children's),
``directory`` (the server's), ``fork`` (a forked copy of itself, which has all its open files; 0 without the argument
``fork``).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from pathlib import Path

from refresher.embedded import GuardedProcess, RedisServer
from tests.support.waiting import eventually

# A leader with two children that all ignore SIGTERM, like a stuck worker with its pool.
FAMILY = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
children = []
for _ in range(2):
    child = os.fork()
    if not child:
        signal.pause()
    children.append(child)
print(os.getpid(), *children, flush=True)
signal.pause()
"""


def family_of(process: GuardedProcess) -> list[int]:
    """Return the pids that a guarded `FAMILY` printed: its own and its children's."""
    line = eventually(lambda: process.tail_of_log().strip(), "the family's pids")
    return [int(pid) for pid in line.split()]


def main() -> None:
    """Start everything, print it, and wait to be killed."""
    server = RedisServer.start()
    with tempfile.TemporaryDirectory() as folder:
        family = GuardedProcess.start(
            [sys.executable, "-c", FAMILY], log_file=Path(folder) / "family.log", grace_seconds=0.2
        )
        pids = family_of(family)
    fork = os.fork() if "fork" in sys.argv else 0
    if "fork" in sys.argv and not fork:
        signal.alarm(60)  # whatever the test does, it ends
        signal.pause()
    print(  # noqa: T201 - its only output
        json.dumps({"server": server.pid, "family": pids, "directory": str(server.directory), "fork": fork}), flush=True
    )
    signal.pause()


if __name__ == "__main__":
    main()
