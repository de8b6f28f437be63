"""Celery's soft time limit, heard once.

A prefork pool that is shutting down sends its signal twice, within a millisecond (Celery 5.7, billiard 4.3). The second
would raise in the middle of what the first has begun, the end of the refresh in its record, which then said "running"
until the lease had run out.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from time import monotonic
from types import FrameType
from typing import Final

from refresher.deadlines import pool_has_limits

SAME_SECONDS: Final = 1.0
"""Of two signals that come so close together the second is the first once more: a limit is five seconds at least."""


class HeardOnce:
    """A handler of signals that passes on the first of several which come together."""

    def __init__(
        self, handle: Callable[[int, FrameType | None], object], *, now: Callable[[], float] = monotonic
    ) -> None:
        self._handle, self._now, self._deaf_until = handle, now, float("-inf")

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Pass it on, unless another one was within the last second."""
        now = self._now()
        if now >= self._deaf_until:
            self._deaf_until = now + SAME_SECONDS
            self._handle(number, frame)


def hear_it_once() -> None:
    """Have the limit interrupt a task of this process once; called on the thread of its tasks.

    Nothing is done where the pool has no limits.
    """
    if not pool_has_limits():
        return
    before = signal.getsignal(signal.SIGUSR1)
    if callable(before) and not isinstance(before, HeardOnce):
        signal.signal(signal.SIGUSR1, HeardOnce(before))
