"""Closes sockets whose kernel timeout signals restart again and again: after each one Python receives anew (PEP 475).

A process whose timers fire faster than that, as some profilers' do, would wait for a silent Redis without end. A bound
by the clock in each read would cost a poll() there, so one thread looks after all of them.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Final, Protocol

from api_client.threads import start_thread

LOOK_SECONDS: Final = 0.5
"""Between two looks."""


class Watched(Protocol):
    """What may wait for too long."""

    def end_if_overdue(self) -> None:
        """End the wait, from another thread, where it should have ended by itself long ago. Raises nothing."""


class Watch:
    """Looks after what it is given for as long as that lives. Its thread is there while there is something.

    `add` is safe against exceptions from signal handlers at any point: only the watch's own thread takes its lock.
    """

    def __init__(self, *, look_seconds: float = LOOK_SECONDS) -> None:
        self._look_seconds = look_seconds
        self._watched: weakref.WeakSet[Watched] = weakref.WeakSet()
        self._running = threading.Lock()
        self.pid: int = os.getpid()

    def add(self, watched: Watched) -> bool:
        """Look after it from now on; False where the system has no thread left for that."""
        self._watched.add(watched)  # before the look at the thread, which looks again after it has let go of the lock
        if not self._running.locked():
            try:
                start_thread(self._run, "cache-overdue")
            except RuntimeError:
                return False
        return True

    def _run(self) -> None:
        while self._watched and self._running.acquire(blocking=False):
            try:
                while self._watched:
                    self._look()
                    time.sleep(self._look_seconds)
            finally:
                self._running.release()

    def _look(self) -> None:
        for watched in _copied(self._watched):
            watched.end_if_overdue()


def _copied(watched: weakref.WeakSet[Watched]) -> list[Watched]:
    while True:
        try:
            return list(watched)
        except RuntimeError:  # another thread has added one meanwhile
            continue


_watch = Watch()


def watch() -> Watch:
    """Return the process's own; a forked child, also of a fork that runs no hooks of Python's, gets another one."""
    global _watch  # noqa: PLW0603 - one for each process
    if _watch.pid != os.getpid():
        _watch = Watch()  # its thread is not there, and another one of the parent may have held its lock
    return _watch
