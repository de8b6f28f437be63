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
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

from refresher.errors import LoadFailed

log: Final = logging.getLogger(__name__)
T = TypeVar("T")

MOST_ABANDONED: Final = 20
"""Loads of one process that never return. With so many it ends, warm, for its supervisor to start a new one."""
GRACE_SECONDS: Final = 0.5
"""For a load that was interrupted to come back."""


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
        self._abandoned: list[_Run[Any]] = []
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
        if run.is_over_within(seconds):
            return run.outcome()
        interrupt()
        if not run.is_over_within(self._grace_seconds):
            self._abandon(run)
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

    def _abandon(self, run: _Run[Any]) -> None:
        with self._lock:
            self._abandoned = [other for other in self._abandoned if not other.is_over_within(0)] + [run]
            count = len(self._abandoned)
        if count >= self._most_abandoned:
            log.critical("%d loads of this process have never returned; it ends, and has to be started again", count)
            self._end()


class _Run(Generic[T]):
    """A call for another thread, and what came of it.

    A bare lock tells of the end: an event and a future take as long again as the switch to the other thread and back.
    """

    __slots__ = ("_call", "_context", "_error", "_is_over", "_returned")

    _returned: T

    def __init__(self, call: Callable[[], T]) -> None:
        self._call, self._context = call, contextvars.copy_context()
        self._error: BaseException | None = None
        self._is_over = threading.Lock()
        self._is_over.acquire()

    def execute(self) -> None:
        """Call it, on the thread that is for it; `tell` says so."""
        try:
            self._returned = self._context.run(self._call)
        except BaseException as error:  # noqa: BLE001 - raised by whoever waits
            self._error = error

    def tell(self) -> None:
        """Tell the one who waits that it is over."""
        self._is_over.release()

    def is_over_within(self, seconds: float) -> bool:
        """Wait for the end, for one who asks; true is said once."""
        return self._is_over.acquire(timeout=seconds)

    def outcome(self) -> T:
        """Return what the call returned, or raise what it raised, once it is over."""
        error, self._error = self._error, None
        if error is None:
            return self._returned
        try:
            raise error
        finally:
            del error  # else its traceback, which ends here, would keep it


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
            run.tell()
            del run


def _end_this_worker() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
