"""Requirements of tests: without one a test is skipped, and fails in CI and in `make test-all`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence


def is_set(variable: str) -> bool:
    """Return whether an environment variable is set to anything but "" or "false"."""
    return os.environ.get(variable, "") not in {"", "false"}


IS_LONG: Final = is_set("LONG_TESTS")
"""Whether tests marked `longer` do more: `make test-long`, which sets LONG_TESTS, runs them again."""


def skip_or_fail(reason: str) -> NoReturn:
    """Skip the test with ``reason``; fail it if CI is set."""
    if is_set("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def each_with_each(
    first: str, firsts: tuple[Any, Any], second: str, seconds: tuple[Any, Any], fixtures: Sequence[str] | None = None
) -> pytest.MarkDecorator:
    """Mark a test with two values for each of two names: each value once, and all four pairs in `make test-long`.

    For parameters that are independent of each other. ``fixtures`` are the names that are fixtures, parametrised by
    the value; by default both.
    """
    pairs = [(firsts[0], seconds[0]), (firsts[1], seconds[1])]
    others = [(firsts[0], seconds[1]), (firsts[1], seconds[0])]
    cases = [*pairs, *(pytest.param(*pair, marks=pytest.mark.long) for pair in others)]
    return pytest.mark.parametrize((first, second), cases, indirect=[first, second] if fixtures is None else fixtures)


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
