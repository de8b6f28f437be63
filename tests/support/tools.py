"""Programs that check the project's files: found on PATH or in the environment of the tests, and run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.requirements import skip_or_fail

ROOT = Path(__file__).parents[2]


def tool(name: str) -> str:
    """Return the path of a program; without it the test is skipped, and fails in CI."""
    found = shutil.which(name) or shutil.which(str(Path(sys.executable).with_name(name)))
    if found is None:
        skip_or_fail(f"{name} is not installed")
    return found


def run(*command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; return its result with its output."""
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
