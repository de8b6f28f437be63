"""A deadline for loads where the worker's pool has none: Celery ends what takes too long in processes, not in threads.

A thread can't be ended. So the load runs in one of its own, and after the deadline nobody waits for it any more: the
pool's thread goes on, and what the other returns, if it ever does, is dropped. Most come back soon, since their
connection is cut. One that hangs in something else stays until its worker ends.
"""

from __future__ import annotations

import contextvars
import logging
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

from billiard.process import current_process

from refresher.errors import LoadFailed

log: Final = logging.getLogger(__name__)
T = TypeVar("T")

MOST_ABANDONED: Final = 20
"""Loads of one process that never return. With so many it ends, warm, for its supervisor to start a new one."""
GRACE_SECONDS: Final = 0.5
"""For a load that was interrupted to come back."""


def pool_has_limits() -> bool:
    """Tell whether this process is one of a prefork pool, which Celery's time limits end."""
    return bool(current_process().name != "MainProcess")


class Deadlines:
    """Runs calls that may have to be abandoned. Thread-safe."""

    def __init__(
        self,
        *,
        most_abandoned: int = MOST_ABANDONED,
        grace_seconds: float = GRACE_SECONDS,
        end: Callable[[], None] | None = None,
    ) -> None:
        self._most_abandoned, self._grace_seconds, self._end = most_abandoned, grace_seconds, end or _end_this_worker
        self._abandoned: list[threading.Event] = []
        self._lock = threading.Lock()
        # As many as there have been loads at a time: to start one for each costs more than a short load.
        self._idle: list[_Thread] = []

    def run(self, call: Callable[[], T], seconds: float, interrupt: Callable[[], None]) -> T:
        """Return what ``call`` returns; ``interrupt`` is called when it has not in time.

        Raises:
            LoadFailed: it did not return in time, or the system has no thread left for it.
            BaseException: what it raised.
        """
        run = _Run(call)
        try:
            thread = self._idle.pop()
        except IndexError:
            thread = self._new_thread()
        thread.runs.put(run)
        if run.is_over.wait(seconds):
            return run.future.result()
        interrupt()
        if not run.is_over.wait(self._grace_seconds):
            self._abandon(run.is_over)
        raise LoadFailed("timeout", f"no end within {seconds:.1f} s", is_transient=True, most_attempts=2)

    def close(self) -> None:
        """End the threads that have nothing to do."""
        while self._idle:
            self._idle.pop().runs.put(None)

    def _new_thread(self) -> _Thread:
        try:
            return _Thread(self._idle)
        except RuntimeError as error:
            raise LoadFailed("transient", f"no thread for the load: {error}", is_transient=True) from error

    def _abandon(self, is_over: threading.Event) -> None:
        with self._lock:
            self._abandoned = [other for other in self._abandoned if not other.is_set()] + [is_over]
            count = len(self._abandoned)
        if count >= self._most_abandoned:
            log.critical("%d loads of this process have never returned; it ends, and has to be started again", count)
            self._end()


class _Run(Generic[T]):
    def __init__(self, call: Callable[[], T]) -> None:
        self.future: Future[T] = Future()
        self.is_over = threading.Event()
        self._call, self._context = call, contextvars.copy_context()

    def execute(self) -> None:
        try:
            self.future.set_result(self._context.run(self._call))
        except BaseException as error:  # noqa: BLE001 - raised by whoever waits
            self.future.set_exception(error)


class _Thread:
    """Executes one run after another; between two of them it is among the idle ones."""

    def __init__(self, idle: list[_Thread]) -> None:
        self.runs: SimpleQueue[_Run[Any] | None] = SimpleQueue()
        self._idle = idle
        threading.Thread(target=self._execute_all, name="load", daemon=True).start()

    def _execute_all(self) -> None:
        while (run := self.runs.get()) is not None:
            run.execute()
            self._idle.append(self)  # before anybody is told: the next load finds it there
            run.is_over.set()
            del run


def _end_this_worker() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
