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
    """Have SIGTERM end this process at once with 143, as everywhere else, where it is its container's first (PID 1).

    The kernel has no default action for that one: until something handles SIGTERM, `podman stop` would wait out its
    grace and kill. Whatever handles it later (Celery's worker, Flower, a command) replaces this handler.
    """
    if (
        os.getpid() == FIRST
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    ):
        signal.signal(signal.SIGTERM, _end)


def _end(number: int, _: FrameType | None) -> None:
    os._exit(SHELLS_OFFSET + number)
