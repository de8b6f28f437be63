"""What a test needs from the machine: at home it is skipped without, in CI it fails."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def skip_or_fail(reason: str) -> NoReturn:
    """Skip the test with ``reason``; fail it when the environment says CI (anything but "" or "false")."""
    if os.environ.get("CI", "") not in {"", "false"}:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
