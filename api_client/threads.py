"""Background threads: started when they are needed, at most one of each, and again after their end.

Signal handlers run on the main thread, between any two of its steps, and may raise there. So an application's thread
makes one call in C here: `threading.Thread.start`, which waits on a Condition, could be left half done.
"""

from __future__ import annotations

import threading
from _thread import RLock, start_new_thread
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from api_client.protocol.clock import monotonic_seconds

START_SECONDS: Final = 1.0


class Mutex(RLock):  # type: ignore[misc] # is final in its types alone
    """A reentrant lock for short critical sections, which no exception of a signal handler leaves held.

    Python 3.14 runs signal handlers after each call of a function in C: with a lock of its own also between the
    acquisition by a `with` and the beginning of the block. After a function in Python, as here, it runs none, nor
    before it calls one in C, as `__exit__` is.
    """

    def __enter__(self) -> bool:  # type: ignore[override]
        """Acquire it."""
        try:
            return self.acquire()
        except BaseException:
            try:  # noqa: SIM105 - one call more could be interrupted
                self.release()
            except RuntimeError:  # interrupted while it waited
                pass
            raise


class Waker:
    """Wakes a thread that waits, or will: a `threading.Event` that the waiter clears.

    It is one lock, held while there is nothing to wake for. An Event is Python code over a lock, which a handler's
    exception can leave held; and a signal at the end of its timeout makes `SimpleQueue.get` wait forever.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wake(self) -> None:
        """Wake it, once for all calls until it has waited."""
        if self._lock.locked():
            with suppress(RuntimeError):  # another thread has just woken it
                self._lock.release()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Return True as soon as it is woken, False after ``timeout_seconds``; None: wait forever."""
        if timeout_seconds is None:
            return self._lock.acquire()
        return self._lock.acquire(timeout=min(max(0.0, timeout_seconds), threading.TIMEOUT_MAX))


def start_thread(run: Callable[[], object], name: str) -> None:
    """Start a daemon thread.

    Raises:
        RuntimeError: the system has none left.
    """
    start_new_thread(_begin, (run, name))


def _begin(run: Callable[[], object], name: str) -> None:
    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError:  # this was the last one
        run()


class OwnThread:
    """A daemon thread of which at most one runs. Thread-safe.

    Args:
        run: its target; when it returns or raises, the next `ensure` starts another thread.
        name: the thread's.
    """

    def __init__(self, run: Callable[[], object], name: str) -> None:
        self._run, self._name = run, name
        self._seat = threading.Lock()  # held by the thread, by a caller at its end alone
        self._thread: threading.Thread | None = None
        self._starts_until = 0.0

    @property
    def is_running(self) -> bool:
        """True from its begin to its end."""
        return self._seat.locked()

    def ensure(self) -> None:
        """Start it unless it runs, or is being started.

        Raises:
            RuntimeError: the system has no thread left.
        """
        if self._seat.locked():
            return
        now = monotonic_seconds()
        if now < self._starts_until:
            return
        start_thread(self._hold_seat, self._name)
        # Not before: an exception may come in between. A second thread would end at once.
        self._starts_until = now + START_SECONDS

    def join(self, timeout_seconds: float) -> bool:
        """Wait for its end, at most ``timeout_seconds``; return whether it came. On the thread itself return at once.

        To be called once nothing calls `ensure` any more.
        """
        # Not by `Thread.join`, which refuses the one that the system's last thread has become.
        if self._thread is None or self._thread is threading.current_thread():
            return self._thread is None
        has_ended = self._seat.acquire(timeout=min(max(0.0, timeout_seconds), threading.TIMEOUT_MAX))
        if has_ended:
            self._seat.release()
        return has_ended

    def _hold_seat(self) -> None:
        if not self._seat.acquire(blocking=False):
            return  # two were started at one time
        try:
            self._thread = threading.current_thread()
            self._run()
        finally:
            self._starts_until = 0.0
            self._seat.release()
