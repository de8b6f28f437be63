"""The one place where tests wait: a condition is polled until it holds, never slept for."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

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
    for pause_seconds in _pauses(within_seconds):
        if value := condition():
            return value
        time.sleep(pause_seconds)
    raise AssertionError(f"{what}: not within {within_seconds:g} s (last seen: {value!r})")


async def aeventually(condition: Callable[[], Awaitable[T]], what: str) -> T:
    """Do the same with a condition that is awaited."""
    for pause_seconds in _pauses(MAX_WAIT_SECONDS):
        if value := await condition():
            return value
        await asyncio.sleep(pause_seconds)
    raise AssertionError(f"{what}: not within {MAX_WAIT_SECONDS:g} s (last seen: {value!r})")


def eventually_without(errors: tuple[type[Exception], ...], call: Callable[[], T], what: str) -> T:
    """Return what ``call`` returns once it raises none of ``errors``: a busy machine exceeds short timeouts."""
    returned: list[T] = []

    def has_returned() -> bool:
        with suppress(*errors):
            returned.append(call())
        return bool(returned)

    eventually(has_returned, what)
    return returned[0]


def _pauses(within_seconds: float) -> Iterator[float]:
    """Yield the pause after each look, of which the last one is after the deadline."""
    deadline, pause_seconds = time.monotonic() + within_seconds, _FIRST_PAUSE_SECONDS
    while time.monotonic() < deadline:
        yield pause_seconds
        pause_seconds = min(pause_seconds * 1.5, _MAX_PAUSE_SECONDS)
    yield 0.0
