"""The one place where tests wait: polling a condition with a deadline, never a lucky pause."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.002, 0.05


def eventually(condition: Callable[[], T], within_seconds: float, what: str) -> T:
    """Return the first truthy value of ``condition``; AssertionError naming ``what`` when none came in time.

    The condition is looked at once more after the deadline, so that a slow machine's pause alone can't fail it.
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
