"""Ends of a worker: the shared shutdown flag, and the end of a process in which a load hangs."""

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
    """Flag of the worker's shutdown, in memory that all processes of its pool share, made before they are forked.

    SIGTERM ends a pool process for two reasons that it can't tell apart: its worker shuts down, or the process alone
    was terminated, for example by a memory limit, and so because of its load.
    """

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 1)

    def set(self) -> None:
        """Record that the worker shuts down, for good."""
        self._shared[0] = 1

    def is_set(self) -> bool:
        """Return whether the worker is shutting down."""
        return self._shared[0] == 1


def end_process(hand_back: Callable[[], None], limit_seconds: float) -> NoReturn:
    """End this process, a worker's only one, because a load in it hangs and a thread can't be ended otherwise.

    Args:
        hand_back: called first, for its other runs; the process ends within `HAND_BACK_SECONDS` in any case.
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
