"""Celery's soft time limit around refreshes, which interrupts loads, once, but no other part of a refresh."""

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
"""A second signal within this time is a repetition of the first, since a limit is at least five seconds."""


class _Now(Enum):
    """Kind of the code that runs now, which determines what the limit interrupts."""

    INTERRUPTED = auto()
    """A load, or a task of another name."""
    LEFT_ALONE = auto()
    """A refresh task outside of its load, which is about to end."""
    INTERRUPTED_LATER = auto()
    """A load in place, outside of the load itself; the code around it goes on."""


class SoftTimeLimit:
    """A handler that debounces the limit's signal, and passes it on only within loads.

    A prefork pool that shuts down sends the signal twice within a millisecond. The second would interrupt the end of
    the refresh, whose record would say "running" until the lease expires. After a stall of the machine the signal may
    come after the end of its task, where it would end the process. Other tasks are interrupted as before, except at the
    ends of their loads in place.
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
        """Let the limit interrupt only loads of this block, which is a refresh task."""
        return self._while(_Now.LEFT_ALONE)

    def in_place(self) -> AbstractContextManager[None]:
        """Let the limit interrupt only loads of this block, and the task around it at the block's end."""
        return self._while(_Now.INTERRUPTED_LATER)

    def in_load(self) -> AbstractContextManager[None]:
        """Let the limit interrupt this block."""
        return self._while(_Now.INTERRUPTED)

    @contextmanager
    def _while(self, now: _Now) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # another thread, since only the main one receives signals
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
