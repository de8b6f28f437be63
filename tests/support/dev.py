"""A running `refresher dev`, watched from outside."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.support.processes import is_gone
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

ROOT = Path(__file__).parents[2]
READY = "Ctrl-C stops everything"


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class Dev:
    """A running `refresher dev`: what it printed so far, and all processes that it ever had."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder, self.temporary = folder / "app", folder / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self._out, self.pids = folder / "out.txt", set[int]()
        with self._out.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "refresher.cli", "dev", *arguments],
                stdout=out, stderr=subprocess.STDOUT, cwd=self.folder, start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(self.temporary)},
            )  # fmt: skip

    def processes(self) -> list[psutil.Process]:
        try:
            found = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        self.pids |= {process.pid for process in found}
        return found

    @property
    def out(self) -> str:
        return self._out.read_text()

    def wait_for(self, words: str, times: int = 1) -> None:
        def printed() -> bool:
            self.processes()
            assert self.process.poll() is None or self.out.count(words) >= times, self.out
            return self.out.count(words) >= times

        eventually(printed, f"it prints {words!r}")

    def environ(self) -> dict[str, str]:
        """The environment of another terminal that has typed what this one says."""
        show = "import json, os; print(json.dumps(dict(os.environ)))"
        return dict(json.loads(self.run(show)))

    def run(self, code: str) -> str:
        """What Python prints in another terminal, or why it failed."""
        done = subprocess.run(
            ["/bin/sh", "-c", f". .refresher-dev/env && exec {shlex.quote(sys.executable)} -c {shlex.quote(code)}"],
            cwd=self.folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
            timeout=MAX_WAIT_SECONDS, check=False,
        )  # fmt: skip
        return done.stdout.strip() or done.stderr

    def end_by(self, number: signal.Signals) -> int:
        """Send a signal; return its exit code, when all that it ever started is gone too."""
        self.processes()
        self.process.send_signal(number)
        code = self.process.wait(MAX_WAIT_SECONDS)
        eventually(lambda: all(map(is_gone, self.pids)), f"all of {self.pids} are gone")
        eventually(lambda: not list(self.temporary.iterdir()), "no temporary file is left")
        eventually(lambda: ".refresher-dev" not in names_in(self.folder), "its folder is gone")
        return code
