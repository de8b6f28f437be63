"""A command of `refresher` that runs for a while, watched from outside."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil

from tests.servers.neo4j_server import SHORT_LIVED_ENV
from tests.support.processes import is_gone
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

T = TypeVar("T")
READY = "Ctrl-C stops everything"


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
                env={**os.environ, **SHORT_LIVED_ENV, "TMPDIR": str(self.temporary), **environ},
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


ROOT = Path(__file__).parents[2]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class Dev(WatchedCommand):
    """A running `refresher dev`."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder / "app"
        super().__init__(folder, self.folder, "dev", *arguments, one_output=True, PYTHONPATH=str(ROOT))

    def wait_for(self, words: str, times: int = 1) -> None:
        self.wait_for_output(lambda: self.out.count(words) >= times, words)

    def environ(self) -> dict[str, str]:
        """Return the environment of another terminal in which the printed commands were typed."""
        show = "import json, os; print(json.dumps(dict(os.environ)))"
        return dict(json.loads(self.run(show)))

    def run(self, code: str) -> str:
        """Run Python in another terminal; return its output, or why it failed."""
        done = subprocess.run(
            ["/bin/sh", "-c", f". .refresher-dev/env && exec {shlex.quote(sys.executable)} -c {shlex.quote(code)}"],
            cwd=self.folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
            timeout=MAX_WAIT_SECONDS, check=False,
        )  # fmt: skip
        return done.stdout.strip() or done.stderr

    def end_by(self, number: signal.Signals) -> int:
        """Send a signal; return the exit code once all processes that it ever started have ended, too."""
        self.signal(number)
        code = self.process.wait(MAX_WAIT_SECONDS)
        self.all_gone()
        eventually(lambda: ".refresher-dev" not in names_in(self.folder), "its folder is gone")
        return code
