"""A command of `refresher` that runs for a while, watched from outside."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil

from tests.support.processes import is_gone
from tests.support.waiting import eventually

T = TypeVar("T")


class WatchedCommand:
    """A running command: its output so far, and all processes that it ever had.

    Args:
        folder: the folder of its output and temporary files.
        cwd: its working directory.
        arguments: its own, beginning with its name.
        one_output: whether errors are part of `out`, as on a terminal; else they are in `err`.
        environ: added to ours.
    """

    def __init__(self, folder: Path, cwd: Path, *arguments: str, one_output: bool = False, **environ: str) -> None:
        self.temporary = folder / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self._out, self._err = folder / "out.txt", folder / "err.txt"
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "refresher.cli", *arguments],
                stdout=out, stderr=subprocess.STDOUT if one_output else err, cwd=cwd, start_new_session=True,
                env={**os.environ, "TMPDIR": str(self.temporary), **environ},
            )  # fmt: skip
        self.pids: set[int] = set()

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def processes(self) -> list[psutil.Process]:
        """Return its current processes."""
        try:
            found = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        self.pids |= {process.pid for process in found}
        return found

    def wait_for_output(self, find: Callable[[], T], what: str) -> T:
        """Wait until ``find`` finds something in the output, and return it; fail if the command ends before."""

        def printed() -> T:
            self.processes()
            has_ended = self.process.poll() is not None
            found = find()
            assert found or not has_ended, self.out + self.err
            return found

        return eventually(printed, f"it prints {what!r}")

    def signal(self, number: int) -> None:
        self.processes()
        self.process.send_signal(number)

    def all_gone(self) -> None:
        """Wait until no process and no file of it is left."""
        eventually(lambda: all(map(is_gone, self.pids)), f"all of {self.pids} are gone")
        eventually(lambda: not list(self.temporary.iterdir()), "no temporary file is left")

    def kill(self, within_seconds: float) -> None:
        """Kill it; its guardians end the rest."""
        self.process.kill()
        self.process.wait(within_seconds)
