"""Time limits of loads in pools without any, as Celery enforces limits in processes but not in threads.

A thread can't be ended. So the load runs in one of its own, and is interrupted at the soft limit by cutting its
connection, after which most loads return. A load that hangs in something else ends with its process: at the hard limit
nothing waits for it any longer, and the worker ends.
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
    """Return whether this process belongs to a prefork pool, which Celery's time limits end."""
    return bool(current_process().name != "MainProcess")


def process_is_ending() -> bool:
    """Return whether this is a prefork pool's process that a signal is ending.

    It ends whatever is raised now. The main process gets no result of its task, and counts the process as lost.
    """
    return pool_has_limits() and terminate_handler_fired()


class ThreadLimits:
    """Runs calls that may have to be abandoned. Thread-safe.

    Attributes:
        hangs: True if a call has exceeded its hard limit and still runs, so that the process has to end.
    """

    def __init__(self) -> None:
        self.hangs: bool = False
        # As many as there have been concurrent loads, since starting a thread costs more than a short load.
        self._idle: list[_LoadThread] = []

    def run(self, call: Callable[[], T], soft_seconds: float, hard_seconds: float, interrupt: Callable[[], None]) -> T:
        """Run ``call`` and return its result; call ``interrupt`` if it has not returned within ``soft_seconds``.

        Raises:
            LoadFailed: it did not return in time (``timeout``, or ``hard_timeout`` if it has not returned within
                ``hard_seconds`` either), or the system has no thread left for it.
            BaseException: raised by ``call``.
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
        """End the idle threads."""
        while self._idle:
            self._idle.pop().runs.put(None)

    def _new_thread(self) -> _LoadThread:
        try:
            return _LoadThread(self._idle)
        except RuntimeError as error:
            raise LoadFailed("transient", f"no thread for the load: {error}", is_transient=True) from error


class _Run(Generic[T]):
    """A call for another thread, and its outcome.

    A bare lock signals the end, since an event or a future would double the time of the switch to the thread and back.
    """

    __slots__ = ("_call", "_context", "_error", "_is_over", "_returned")

    _returned: T

    def __init__(self, call: Callable[[], T]) -> None:
        self._call, self._context = call, contextvars.copy_context()
        self._error: BaseException | None = None
        self._is_over = threading.Lock()
        self._is_over.acquire()

    def execute(self) -> None:
        """Make the call, on the other thread; `finish` has to follow."""
        try:
            self._returned = self._context.run(self._call)
        except BaseException as error:  # noqa: BLE001 - raised by the waiter
            self._error = error

    def finish(self) -> None:
        """Wake the waiter."""
        self._is_over.release()

    def wait(self, seconds: float) -> bool:
        """Wait for the end; return whether it came within ``seconds``. True only once."""
        return self._is_over.acquire(timeout=seconds)

    def outcome(self) -> T:
        """Return the call's result, or raise its exception, once it is over."""
        error, self._error = self._error, None
        if error is None:
            return self._returned
        try:
            raise error
        finally:
            del error  # otherwise its traceback, which ends here, would keep it alive


class _LoadThread:
    """Executes one run after another; between two of them it is among the idle threads."""

    def __init__(self, idle: list[_LoadThread]) -> None:
        self.runs: SimpleQueue[_Run[Any] | None] = SimpleQueue()
        self._idle = idle
        threading.Thread(target=self._execute_all, name="load", daemon=True).start()

    def _execute_all(self) -> None:
        # Without a timeout, with which CPython may wait forever (docs/development/upstream/cpython-simplequeue-get.md).
        while (run := self.runs.get()) is not None:
            run.execute()
            self._idle.append(self)  # before the waiter wakes, so that its next load finds this thread
            run.finish()
            del run


def _timed_out(kind: str, seconds: float) -> LoadFailed:
    return LoadFailed(kind, f"did not end within {seconds:.1f} s", is_transient=True, max_attempts=MAX_ATTEMPTS)
