"""The process of a worker's pool in which loads run: what interrupts a load, and what ends the process."""

from __future__ import annotations

import logging
import mmap
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType
from typing import Final, NoReturn

from billiard.common import terminate_handler_fired
from billiard.process import current_process

log: Final = logging.getLogger(__name__)

EX_FAILURE: Final = 1
HAND_BACK_SECONDS: Final = 10.0
SAME_SIGNAL_SECONDS: Final = 1.0
"""Of two signals that come so close together the second is the first once more: a limit is five seconds at least."""


def pool_has_limits() -> bool:
    """Return whether this process is one of a prefork pool, which Celery's time limits end."""
    return bool(current_process().name != "MainProcess")


def process_is_ending() -> bool:
    """Return whether this is a process of a prefork pool that is ending by a signal.

    Whatever is raised now, it goes. Its main process gets no result of the task, and counts the process as lost.
    """
    return pool_has_limits() and terminate_handler_fired()


def end_process(hand_back: Callable[[], None], limit_seconds: float) -> NoReturn:
    """End this process, a worker's only one, since a load in it has no end: a thread can't be ended otherwise.

    Args:
        hand_back: called first, for its other runs; the process ends within `HAND_BACK_SECONDS` all the same.
        limit_seconds: the hard time limit that the load has met, for the log.
    """
    log.critical(
        "a load has gone on beyond the hard time limit of %g s, and nothing but the end of its process ends it in this "
        "pool: this worker ends with exit code %d, to be started again; its other runs are handed back",
        limit_seconds,
        EX_FAILURE,
    )
    at_the_latest = threading.Timer(HAND_BACK_SECONDS, os._exit, (EX_FAILURE,))
    at_the_latest.daemon = True
    at_the_latest.start()
    hand_back()
    logging.shutdown()
    os._exit(EX_FAILURE)


class ShutdownFlag:
    """Whether the worker shuts down, known to all processes of its pool: memory that they share, made before they are.

    A pool's process ends by SIGTERM for two reasons that it can't distinguish: its worker shuts down, or it alone was
    terminated, by a limit of memory for example, and so by what it loads.
    """

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 1)

    def set(self) -> None:
        """Say that the worker shuts down; there is no way back."""
        self._shared[0] = 1

    def is_set(self) -> bool:
        """Return whether it does."""
        return self._shared[0] == 1


class SoftTimeLimit:
    """Celery's soft time limit, kept to what it is for: in a refresh it interrupts the load, once, and nothing else.

    A prefork pool that is shutting down sends its signal twice, within a millisecond (Celery 5.7, billiard 4.3). The
    second would raise in the middle of what the first has begun, the end of the refresh in its record, which then said
    "running" until the lease had run out. Tasks of other names are interrupted as ever.
    """

    def __init__(self, handle: Callable[[int, FrameType | None], object] | None = None) -> None:
        self._handle = handle
        self._is_in_task = self._is_in_load = False
        self._deaf_until = float("-inf")

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal."""
        now = monotonic()
        if self._handle is None or now < self._deaf_until or (self._is_in_task and not self._is_in_load):
            return
        self._deaf_until = now + SAME_SIGNAL_SECONDS
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
