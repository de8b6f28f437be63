"""Time limits of loads where the worker's pool has none: Celery enforces them in processes, not in threads.

A thread can't be ended. So the load runs in one of its own, which is interrupted at the soft limit: its connection is
cut, and most loads return then. One that hangs in something else ends with its process: at the hard limit it is not
waited for any longer, and the worker ends.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

from billiard.common import terminate_handler_fired
from billiard.process import current_process

from refresher.errors import LoadFailed

T = TypeVar("T")

MAX_ATTEMPTS: Final = 2


def pool_has_limits() -> bool:
    """Return whether this process is one of a prefork pool, which Celery's time limits end."""
    return bool(current_process().name != "MainProcess")


def process_is_ending() -> bool:
    """Return whether this is a process of a prefork pool that is ending by a signal.

    Whatever is raised now, it goes. Its main process gets no result of the task, and counts the process as lost.
    """
    return pool_has_limits() and terminate_handler_fired()


class ThreadLimits:
    """Runs calls that may have to be abandoned. Thread-safe.

    Attributes:
        hangs: whether a call has exceeded its hard limit and still runs: the process has to end.
    """

    def __init__(self) -> None:
        self.hangs: bool = False
        # As many as there have been concurrent loads: starting one for each costs more than a short load.
        self._idle: list[_LoadThread] = []

    def run(self, call: Callable[[], T], soft_seconds: float, hard_seconds: float, interrupt: Callable[[], None]) -> T:
        """Return what ``call`` returns; ``interrupt`` is called when it has not within ``soft_seconds``.

        Raises:
            LoadFailed: it did not return in time (``timeout``; ``hard_timeout``, where it still has not within
                ``hard_seconds``), or the system has no thread left for it.
            BaseException: what it raised.
        """
        run = _Run(call)
        try:
            thread = self._idle.pop()
        except IndexError:
            thread = self._new_thread()
        thread.runs.put(run)
        if run.wait(soft_seconds):
            return run.outcome()
        interrupt()
        if run.wait(hard_seconds - soft_seconds):
            raise _timed_out("timeout", soft_seconds)
        self.hangs = True
        raise _timed_out("hard_timeout", hard_seconds)

    def close(self) -> None:
        """End the threads that have nothing to do."""
        while self._idle:
            self._idle.pop().runs.put(None)

    def _new_thread(self) -> _LoadThread:
        try:
            return _LoadThread(self._idle)
        except RuntimeError as error:
            raise LoadFailed("transient", f"no thread for the load: {error}", is_transient=True) from error


class _Run(Generic[T]):
    """A call for another thread, and its outcome.

    A bare lock signals the end: an event or a future takes as long again as the switch to the other thread and back.
    """

    __slots__ = ("_call", "_context", "_error", "_is_over", "_returned")

    _returned: T

    def __init__(self, call: Callable[[], T]) -> None:
        self._call, self._context = call, contextvars.copy_context()
        self._error: BaseException | None = None
        self._is_over = threading.Lock()
        self._is_over.acquire()

    def execute(self) -> None:
        """Call it, on the other thread; `finish` has to follow."""
        try:
            self._returned = self._context.run(self._call)
        except BaseException as error:  # noqa: BLE001 - raised by the waiter
            self._error = error

    def finish(self) -> None:
        """Wake the waiter."""
        self._is_over.release()

    def wait(self, seconds: float) -> bool:
        """Return whether it is over within ``seconds``; true once."""
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


class _LoadThread:
    """Executes one run after another; between two of them it is among the idle ones."""

    def __init__(self, idle: list[_LoadThread]) -> None:
        self.runs: SimpleQueue[_Run[Any] | None] = SimpleQueue()
        self._idle = idle
        threading.Thread(target=self._execute_all, name="load", daemon=True).start()

    def _execute_all(self) -> None:
        # Without a timeout, with which CPython may wait forever (docs/development/upstream/cpython-simplequeue-get.md).
        while (run := self.runs.get()) is not None:
            run.execute()
            self._idle.append(self)  # before the waiter wakes: its next load finds it there
            run.finish()
            del run


def _timed_out(kind: str, seconds: float) -> LoadFailed:
    return LoadFailed(kind, f"did not end within {seconds:.1f} s", is_transient=True, max_attempts=MAX_ATTEMPTS)
