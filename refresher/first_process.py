"""SIGTERM in a container's first process, which ignores it by default."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Final

FIRST: Final = 1
SHELLS_OFFSET: Final = 128


def end_on_sigterm() -> None:
    """Make SIGTERM end this process at once with 143, if it is its container's first (PID 1), as it does elsewhere.

    The kernel has no default action for that process: until something handles SIGTERM, `podman stop` would wait out its
    grace period and kill. Any later handler (of Celery's worker, Flower, a command) replaces this one.
    """
    if (
        os.getpid() == FIRST
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    ):
        signal.signal(signal.SIGTERM, _end)


def _end(number: int, _: FrameType | None) -> None:
    os._exit(SHELLS_OFFSET + number)
