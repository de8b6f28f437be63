"""A running `refresher dev`, watched from outside."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.waiting import MAX_WAIT_SECONDS, eventually
from tests.support.watched_command import WatchedCommand

ROOT = Path(__file__).parents[2]
READY = "Ctrl-C stops everything"


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
