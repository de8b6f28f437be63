"""Celery's soft time limit in a refresh: it interrupts the load, once, and nothing else."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType
from typing import Final

from refresher.graph.thread_limits import pool_has_limits

SAME_SIGNAL_SECONDS: Final = 1.0
"""A second signal within this time repeats the first one: a limit is five seconds at least."""


class SoftTimeLimit:
    """A handler of the limit's signal that debounces it, and passes it on inside of loads alone.

    A prefork pool that is shutting down sends the signal twice, within a millisecond. The second would interrupt the
    end of the refresh in its record, which then said "running" until the lease had run out. Tasks of other names are
    interrupted as before.
    """

    def __init__(self, handle: Callable[[int, FrameType | None], object] | None = None) -> None:
        self._handle = handle
        self._is_in_task = self._is_in_load = False
        self._ignored_until = float("-inf")

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal."""
        now = monotonic()
        if self._handle is None or now < self._ignored_until or (self._is_in_task and not self._is_in_load):
            return
        self._ignored_until = now + SAME_SIGNAL_SECONDS
        self._handle(number, frame)

    @contextmanager
    def in_task(self) -> Iterator[None]:
        """Interrupt nothing of this block but loads; called on the thread of the process's tasks."""
        if pool_has_limits():
            before = signal.getsignal(signal.SIGUSR1)
            if callable(before) and before is not self:
                self._handle = before
                signal.signal(signal.SIGUSR1, self)
        self._is_in_task = True
        try:
            yield
        finally:
            self._is_in_task = False

    @contextmanager
    def in_load(self) -> Iterator[None]:
        """Have the limit interrupt this block."""
        self._is_in_load = True
        try:
            yield
        finally:
            self._is_in_load = False


soft_limit: Final = SoftTimeLimit()
