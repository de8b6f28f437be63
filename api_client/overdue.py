"""Ends reads that signals prolong: after each one Python receives again, and the kernel's timeout begins anew.

A process whose timers fire faster than that, as some profilers' do, would wait for a silent Redis without end. A bound
by the clock in each read would cost a poll() there, so one thread looks after all of them.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Final, Protocol

LOOK_SECONDS: Final = 0.5
"""Between two looks."""


class Watched(Protocol):
    """What may wait for too long."""

    def end_if_overdue(self) -> None:
        """End the wait, from another thread, where it should have ended by itself long ago. Raises nothing."""


class Watch:
    """Looks after what it is given for as long as that lives. Its thread is there while there is something."""

    def __init__(self, *, look_seconds: float = LOOK_SECONDS) -> None:
        self._look_seconds = look_seconds
        self._watched: weakref.WeakSet[Watched] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._has_thread = False

    def add(self, watched: Watched) -> bool:
        """Look after it from now on; False where the system has no thread left for that."""
        with self._lock:
            if not self._has_thread:
                try:
                    threading.Thread(target=self._run, name="cache-overdue", daemon=True).start()
                except RuntimeError:
                    return False
                self._has_thread = True
            self._watched.add(watched)
        return True

    def _run(self) -> None:
        while self._is_needed():
            time.sleep(self._look_seconds)

    def _is_needed(self) -> bool:
        """End what is overdue; False where nothing is left to look after."""
        with self._lock:
            there = list(self._watched)
            self._has_thread = bool(there)
        for watched in there:
            watched.end_if_overdue()
        return bool(there)


_watch = Watch()


def watch() -> Watch:
    """Return the process's own."""
    return _watch


def _after_fork_in_child() -> None:
    # The thread is not there, and another one of the parent may have held the lock.
    global _watch  # noqa: PLW0603 - one a process, as said above
    _watch = Watch()


os.register_at_fork(after_in_child=_after_fork_in_child)
