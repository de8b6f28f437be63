"""A process that starts guarded ones, says which, and waits to be killed: ``python -m tests.support.killable_parent``.

Its first line of output is JSON: ``server`` (a Redis), ``family`` (a guarded program's pid and its children's),
``directory`` (the server's), ``fork`` (a forked copy of itself, which holds all that it held; 0 without the argument
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

# A leader with two children, all deaf to SIGTERM, as a stuck worker with its pool would be.
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
    """The pids that a guarded `FAMILY` printed: its own and its children's."""
    line = eventually(lambda: process.tail_of_log().strip(), "the family's pids")
    return [int(pid) for pid in line.split()]


def main() -> None:
    """Start everything, say so, and wait for the end."""
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
