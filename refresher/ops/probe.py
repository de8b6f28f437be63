"""Runs a possibly hanging probe on a daemon thread, with a timeout and a cached result."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, NoReturn, TypeVar

T = TypeVar("T")


class ProbeTimeout(Exception):
    """The probe has not returned in time. It is still running, and is not started a second time meanwhile."""


class CachedProbe(Generic[T]):
    """A call that may hang, and never holds up its caller. Thread-safe.

    ::

        result(2) ──▶ thread: probe() ──────────▶ result, cached for ttl_seconds
                  └─▶ after 2 s: ProbeTimeout, at once for every later caller, until it returns

    Args:
        probe: what to call; may raise, may hang.
        ttl_seconds: how long a result, an error too, is reused.
        monotonic: the clock.
    """

    def __init__(
        self, probe: Callable[[], T], *, ttl_seconds: float = 0.0, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._probe, self._ttl_seconds, self._monotonic = probe, ttl_seconds, monotonic
        self._lock = threading.Lock()
        self._done: threading.Event | None = None  # while it runs
        self._started_at = 0.0
        self._finished_at: float | None = None
        self._result: Callable[[], T] = _no_result

    def start(self) -> threading.Event | None:
        """Start the probe unless it runs or its result is cached; returns the event of its end, None when cached."""
        with self._lock:
            if self._done is None and not self._is_cached():
                self._done, self._started_at = threading.Event(), self._monotonic()
                # A daemon: one that hangs must not keep the process from ending.
                threading.Thread(target=self._run, args=(self._done,), name="probe", daemon=True).start()
            return self._done

    def result(self, timeout: float) -> T:
        """Return the result, or raise what the probe raised.

        Raises:
            ProbeTimeout: there is none ``timeout`` seconds after the probe was started, by whichever caller.
        """
        done = self.start()
        if done is not None and not done.wait(max(0.0, self._started_at + timeout - self._monotonic())):
            raise ProbeTimeout
        return self._result()

    def _is_cached(self) -> bool:
        return self._finished_at is not None and self._monotonic() - self._finished_at < self._ttl_seconds

    def _run(self, done: threading.Event) -> None:
        try:
            value = self._probe()
        except Exception as error:  # noqa: BLE001 - raised by `result`
            self._finish(done, _raising(error))
        else:
            self._finish(done, lambda: value)

    def _finish(self, done: threading.Event, result: Callable[[], T]) -> None:
        with self._lock:
            self._result, self._finished_at, self._done = result, self._monotonic(), None
        done.set()


def _no_result() -> NoReturn:
    raise ProbeTimeout


def _raising(error: Exception) -> Callable[[], NoReturn]:
    def result() -> NoReturn:
        # It is raised for every caller: without this, its traceback would grow each time.
        raise error.with_traceback(None)

    return result
