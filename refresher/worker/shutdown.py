"""Ends of a worker: the shared flag of its shutdown, and the end of a process in which a load hangs."""

from __future__ import annotations

import logging
import mmap
import os
import threading
from collections.abc import Callable
from typing import Final, NoReturn

log: Final = logging.getLogger(__name__)

EX_FAILURE: Final = 1
HAND_BACK_SECONDS: Final = 10.0


class ShutdownFlag:
    """Flag of the worker's shutdown, shared by all processes of its pool: memory that is made before they are forked.

    A pool's process ends by SIGTERM for two reasons that it can't distinguish: its worker shuts down, or it alone was
    terminated, by a limit of memory for example, and so by what it loads.
    """

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 1)

    def set(self) -> None:
        """Record that the worker shuts down, for good."""
        self._shared[0] = 1

    def is_set(self) -> bool:
        """Return whether it does."""
        return self._shared[0] == 1


def end_process(hand_back: Callable[[], None], limit_seconds: float) -> NoReturn:
    """End this process, a worker's only one, since a load in it has no end: a thread can't be ended otherwise.

    Args:
        hand_back: called first, for its other runs; the process ends within `HAND_BACK_SECONDS` all the same.
        limit_seconds: the hard time limit that the load has exceeded, for the log.
    """
    log.critical(
        "a load exceeded the hard time limit of %g s, and this pool can't end it: this worker exits with code %d, "
        "to be started again; its other runs are handed back",
        limit_seconds,
        EX_FAILURE,
    )
    deadline = threading.Timer(HAND_BACK_SECONDS, os._exit, (EX_FAILURE,))
    deadline.daemon = True
    deadline.start()
    hand_back()
    logging.shutdown()
    os._exit(EX_FAILURE)
