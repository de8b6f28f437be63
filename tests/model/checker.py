"""Runs Spin: builds the verifier of a case, checks every state, and parses the output."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.model.cases import Case

MODEL: Final = Path(__file__).parent
TOOLS: Final = ("spin", "gcc")
MEMORY_MIB: Final = 2000
DEEPEST: Final = 100_000
MAX_STORY: Final = 120
# Every state is kept whole (COLLAPSE compresses without loss): no hash is taken for a state, so none can be missed.
EXHAUSTIVE: Final = ("-DSAFETY", "-DCOLLAPSE", "-DNOREDUCE", f"-DMEMLIM={MEMORY_MIB}")
INCOMPLETE: Final = ("Search not completed", "max search depth too small", "out of memory")
END_STATE: Final = "invalid end state"


class SpinFailed(Exception):
    """The output of a tool is not a result of a check."""


@dataclass(frozen=True, slots=True)
class Result:
    """A result of Spin. ``violated`` is an invariant's number, 0: none; ``events`` the path there, a line per step."""

    case: Case
    violated: int
    events: tuple[str, ...]
    states: int
    transitions: int
    depth: int
    seconds: float
    memory_mib: float

    @property
    def as_expected(self) -> bool:
        """Return whether exactly the expected invariant was violated, or none."""
        return self.violated == self.case.violated


def missing_tools() -> list[str]:
    """Return the required programs that this machine lacks."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def spin_version() -> str:
    """Return the version of ``spin``, such as "6.5.2"."""
    said = _run(["spin", "-V"], MODEL)
    found = re.search(r"Version (\d+(?:\.\d+)*)", said)
    if found is None:
        raise SpinFailed(said)
    return found[1]


def check(case: Case, folder: Path) -> Result:
    """Check every state of ``case``; a refuted one ends at its first error, which is a shortest one.

    Args:
        case: the case to check.
        folder: an empty folder of its own, for the verifier and its trail.

    Raises:
        SpinFailed: the search was not complete, or a tool failed.
    """
    flags = [f"-D{flag}" for flag in case.flags]
    _run(["spin", "-a", *flags, _file(case)], folder)
    # An error is found soon, and most cases are checked before gcc would have optimised their verifier.
    level = "-O2" if case.is_long else "-O0" if case.violated else "-Og"
    _run(["gcc", "-w", level, *EXHAUSTIVE, "-o", "pan", "pan.c"], folder)
    began = time.monotonic()
    ignoring = ["-E"] if "PROPERTY=7" in case.flags else []  # runs that took an old message leave a new one untaken
    said = _run(["./pan", f"-m{DEEPEST}", *ignoring], folder)
    seconds = time.monotonic() - began
    found = _number(r"errors: (\d+)", said)
    if not found and any(sign in said for sign in INCOMPLETE):
        raise SpinFailed(said)
    events = _events(case, folder) if found else ()
    return Result(
        case,
        _violated(said, events) if found else 0,
        events,
        states=int(_number(r"([\d.e+]+) states, stored", said)),
        transitions=int(_number(r"([\d.e+]+) transitions", said)),
        depth=int(_number(r"depth reached (\d+)", said)),
        seconds=seconds,
        memory_mib=_number(r"([\d.]+)\s+total actual memory usage", said),
    )


def shortest_way(case: Case, folder: Path) -> tuple[str, ...]:
    """Return the events of the shortest path to the error of a broken variant."""
    flags = [f"-D{flag}" for flag in case.flags]
    _run(["spin", "-a", *flags, _file(case)], folder)
    _run(["gcc", "-w", "-O1", "-DREACH", *EXHAUSTIVE, "-o", "pan", "pan.c"], folder)
    _run(["./pan", "-i", f"-m{MAX_STORY}"], folder)
    return _events(case, folder)


def simulate(case: Case, seed: int, folder: Path) -> tuple[str, ...]:
    """Return the events of one random run of the model."""
    flags = [f"-D{flag}" for flag in case.flags]
    return _lines(_run(["spin", f"-n{seed}", "-u2000", *flags, _file(case)], folder))


def _events(case: Case, folder: Path) -> tuple[str, ...]:
    (trail,) = folder.glob("*.trail")
    flags = [f"-D{flag}" for flag in case.flags]
    return _lines(_run(["spin", "-k", str(trail), *flags, _file(case)], folder))


def _file(case: Case) -> str:
    return str(MODEL / f"{case.model}.pml")


def _lines(said: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in said.splitlines() if re.match(r"\s*[a-z_]+\|", line))


def _violated(said: str, events: tuple[str, ...]) -> int:
    if END_STATE in said.partition("Full statespace")[0]:
        return 5  # a reader is blocked, waiting for another process
    return next((int(event.partition("|")[2]) for event in events if event.startswith("violated|")), -1)


def _number(pattern: str, said: str) -> float:
    found = re.search(pattern, said)
    if found is None:
        raise SpinFailed(said)
    return float(found[1])


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if command[0] in TOOLS and done.returncode:
        raise SpinFailed(done.stdout + done.stderr)
    return done.stdout + done.stderr
