"""What a test needs from the machine: at home it is skipped without, in CI it fails."""

from __future__ import annotations

import os
from typing import Final, NoReturn

import pytest


def is_set(variable: str) -> bool:
    """Tell whether the environment says so: anything but "" or "false"."""
    return os.environ.get(variable, "") not in {"", "false"}


full_runs_only: Final = pytest.mark.skipif(
    not is_set("CI") and not is_set("FULL_TESTS"), reason="takes minutes: runs in CI, and at home with FULL_TESTS=1"
)
"""Marks what would make `make test` at home longer than ten minutes; everything in CI runs it."""


def skip_or_fail(reason: str) -> NoReturn:
    """Skip the test with ``reason``; fail it when the environment says CI."""
    if is_set("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
