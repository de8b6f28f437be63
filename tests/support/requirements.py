"""Requirements of tests: without one a test is skipped, and fails in CI and in `make test-all`."""

from __future__ import annotations

import os
from typing import Final, NoReturn

import pytest


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
