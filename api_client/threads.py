"""Background threads, started on demand, at most one of each, and restarted after their end.

Signal handlers run on the main thread, between any two of its steps, and may raise there. So an application's thread
makes a single C call here; `threading.Thread.start`, which waits on a Condition, could be left half done.
"""

from __future__ import annotations

import threading
from _thread import RLock, start_new_thread
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from api_client.protocol.clock import monotonic_seconds

START_SECONDS: Final = 1.0


class Mutex(RLock):  # type: ignore[misc] # final only in its type stub
    """A reentrant lock for short critical sections, which a signal handler's exception never leaves held.

    Python 3.14 runs signal handlers after each call of a C function, so with a plain lock also between the acquisition
    by a `with` and the start of its block. It runs none after a Python function, as here, nor before a call of a C
    function, as `__exit__` is.
    """

    def __enter__(self) -> bool:  # type: ignore[override]
        """Acquire the lock."""
        try:
            return self.acquire()
        except BaseException:
            try:  # noqa: SIM105 - one call more could be interrupted
                self.release()
            except RuntimeError:  # interrupted while waiting
                pass
            raise


class Waker:
    """Wakes a thread that is waiting or will wait, like a `threading.Event` that the waiter clears.

    It is a single lock, held while there is nothing to wake for. An Event is Python code over a lock, which a handler's
    exception can leave held, and `SimpleQueue.get` waits forever after a signal at the end of its timeout.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wake(self) -> None:
        """Wake the thread, once for all calls until it has waited."""
        if self._lock.locked():
            with suppress(RuntimeError):  # another thread has just done so
                self._lock.release()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait; return True as soon as woken, False after ``timeout_seconds`` (None: wait forever)."""
        if timeout_seconds is None:
            return self._lock.acquire()
        return self._lock.acquire(timeout=min(max(0.0, timeout_seconds), threading.TIMEOUT_MAX))


def start_thread(run: Callable[[], object], name: str) -> None:
    """Start a daemon thread.

    Raises:
        RuntimeError: the system has no thread left.
    """
    start_new_thread(_begin, (run, name))


def _begin(run: Callable[[], object], name: str) -> None:
    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError:  # this was the system's last thread
        run()


class OwnThread:
    """A daemon thread that runs at most once at a time. Thread-safe.

    Args:
        run: the target; after it has returned or raised, the next `ensure` starts another thread.
        name: the thread's name.
    """

    def __init__(self, run: Callable[[], object], name: str) -> None:
        self._run, self._name = run, name
        self._seat = threading.Lock()  # held by the thread, and by a caller only at the end
        self._thread: threading.Thread | None = None
        self._starts_until = 0.0

    @property
    def is_running(self) -> bool:
        """True from the thread's start to its end."""
        return self._seat.locked()

    def ensure(self) -> None:
        """Start the thread unless it is running or being started.

        Raises:
            RuntimeError: the system has no thread left.
        """
        if self._seat.locked():
            return
        now = monotonic_seconds()
        if now < self._starts_until:
            return
        start_thread(self._hold_seat, self._name)
        # Only now, since an exception may come before; a second thread would end at once.
        self._starts_until = now + START_SECONDS

    def join(self, timeout_seconds: float) -> bool:
        """Wait for the thread's end, at most ``timeout_seconds`` (on the thread itself: 0); return whether it came.

        Call it only once nothing calls `ensure` any more.
        """
        # Not with `Thread.join`, which refuses a thread started as the system's last one.
        if self._thread is None or self._thread is threading.current_thread():
            return self._thread is None
        has_ended = self._seat.acquire(timeout=min(max(0.0, timeout_seconds), threading.TIMEOUT_MAX))
        if has_ended:
            self._seat.release()
        return has_ended

    def _hold_seat(self) -> None:
        if not self._seat.acquire(blocking=False):
            return  # two were started at the same time
        try:
            self._thread = threading.current_thread()
            self._run()
        finally:
            self._starts_until = 0.0
            self._seat.release()
