"""`python -m benchmarks …` as it is typed, and what it writes."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

ROOT: Final = Path(__file__).parents[2]
RUN_SECONDS: Final = 600  # a quick run takes less than a minute, and ten times that on a machine that is held up


def bench(name: str, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a benchmark to its end."""
    return subprocess.run(
        _command(name, *args),
        capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, **environ}, timeout=RUN_SECONDS,
    )  # fmt: skip


def assert_one_line(done: subprocess.CompletedProcess[str], says: str) -> None:
    """It was refused, and said why."""
    assert done.returncode in (1, 2)
    assert says in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


class Begun:
    """A benchmark that runs, as from a terminal; ``out`` is what it has printed."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path) -> None:
        self._process, self._out = process, out

    @property
    def out(self) -> str:
        """What it has printed so far."""
        return self._out.read_text()

    def children(self) -> set[int]:
        """All processes that it has now; it must not have ended."""
        assert self._process.poll() is None, self.out
        return {child.pid for child in psutil.Process(self._process.pid).children(recursive=True)}

    def interrupted(self, within_seconds: float) -> int:
        """Press Ctrl-C, which goes to all of the group, and return the exit code."""
        os.killpg(self._process.pid, signal.SIGINT)
        return self._process.wait(within_seconds)


@contextmanager
def begun(name: str, *args: str, folder: Path) -> Iterator[Begun]:
    """Start a benchmark that writes into the folder; in the end it is gone."""
    out = folder / "out.txt"
    with out.open("w") as file:
        process = subprocess.Popen(
            _command(name, *args, "--out", str(folder)), stdout=file, stderr=file, cwd=ROOT, start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
    try:
        yield Begun(process, out)
    finally:
        process.kill()
        process.wait(60)


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file, by heading."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _command(name: str, *args: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks", name, *args]
