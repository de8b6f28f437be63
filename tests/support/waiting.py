"""The one place where tests wait: a condition is polled until it holds, never slept for."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.002, 0.05

PATIENCE: Final = float(os.environ.get("TEST_PATIENCE", "1"))
"""Scales the one bound of all waits, for machines that are slower or busier than most."""

MAX_WAIT_SECONDS: Final = 120 * PATIENCE
"""How long a test waits for a state before it fails. No promise about time: it only ends a test that would hang."""


def eventually(condition: Callable[[], T], what: str, *, within_seconds: float = MAX_WAIT_SECONDS) -> T:
    """Return the first truthy value of ``condition``; AssertionError naming ``what`` when none came in time.

    ``within_seconds`` is only for promises about time, and for tests of waiting itself. The condition is checked once
    more after the deadline, so that a slow machine's pause alone can't fail it.
    """
    deadline = time.monotonic() + within_seconds
    pause = _FIRST_PAUSE_SECONDS
    while True:
        last_look = time.monotonic() >= deadline
        value = condition()
        if value:
            return value
        if last_look:
            raise AssertionError(f"{what}: not within {within_seconds:g} s (last seen: {value!r})")
        time.sleep(pause)
        pause = min(pause * 1.5, _MAX_PAUSE_SECONDS)
