"""Celery's soft time limit around refreshes: it interrupts loads, once, and nothing else of a refresh."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import Enum, auto
from time import monotonic
from types import FrameType
from typing import Final

from celery import current_task

from refresher.graph.thread_limits import pool_has_limits

SAME_SIGNAL_SECONDS: Final = 1.0
"""A second signal within this time repeats the first one: a limit is five seconds at least."""


class _Now(Enum):
    """Interruptibility of the code that runs now."""

    INTERRUPTED = auto()
    """A load, or a task of another name."""
    LEFT_ALONE = auto()
    """A refresh task apart from its load: it is about to end."""
    INTERRUPTED_LATER = auto()
    """A load in place, apart from the load itself: what is around it goes on."""


class SoftTimeLimit:
    """A handler of the limit's signal that debounces it, and passes it on inside of loads alone.

    A prefork pool that is shutting down sends the signal twice, within a millisecond. The second would interrupt the
    end of the refresh in its record, which then said "running" until the lease had run out. A machine that stands still
    lets the signal come after its task has ended, where it would end the process. Tasks of other names are interrupted
    as before, but for the ends of what they load in place.
    """

    def __init__(self, handle: Callable[[int, FrameType | None], object] | None = None) -> None:
        self._handle = handle
        self._now = _Now.INTERRUPTED
        self._is_pending = False
        self._ignored_until = float("-inf")

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal."""
        now = monotonic()
        is_ignored = now < self._ignored_until or self._now is _Now.LEFT_ALONE or not current_task
        if self._handle is None or is_ignored:
            return
        self._ignored_until = now + SAME_SIGNAL_SECONDS
        if self._now is _Now.INTERRUPTED_LATER:
            self._is_pending = True
        else:
            self._handle(number, frame)

    def in_task(self) -> AbstractContextManager[None]:
        """Interrupt nothing of this block, a refresh task, but loads."""
        return self._while(_Now.LEFT_ALONE)

    def in_place(self) -> AbstractContextManager[None]:
        """Interrupt nothing of this block, in whatever task, but loads; the task is interrupted at the block's end."""
        return self._while(_Now.INTERRUPTED_LATER)

    def in_load(self) -> AbstractContextManager[None]:
        """Have the limit interrupt this block."""
        return self._while(_Now.INTERRUPTED)

    @contextmanager
    def _while(self, now: _Now) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # which receives the signals, and is elsewhere
            return
        self._install()
        before = self._now
        self._enter(now)
        try:
            yield
        finally:
            self._enter(before)

    def _enter(self, now: _Now) -> None:
        self._now = now
        if now is _Now.INTERRUPTED and self._is_pending and self._handle is not None:
            self._is_pending = False
            self._handle(signal.SIGUSR1, None)

    def _install(self) -> None:
        if pool_has_limits():
            before = signal.getsignal(signal.SIGUSR1)
            if callable(before) and before is not self:
                self._handle = before
                signal.signal(signal.SIGUSR1, self)


soft_limit: Final = SoftTimeLimit()
