"""Probes that may hang, on a daemon thread, with a timeout and a cached result."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

T = TypeVar("T")


class ProbeTimeout(Exception):
    """The probe has not returned in time; it is still running, and is not started again until it ends."""


class CachedProbe(Generic[T]):
    """A call that may hang but never holds up its caller. Thread-safe.

    ::

        result(2) ──▶ thread: probe() ──────────▶ result, cached for ttl_seconds
                  └─▶ after 2 s: ProbeTimeout, at once for every later caller, until it returns

    Args:
        probe: the call, which may raise or hang.
        ttl_seconds: the time for which a result or an error is reused.
        monotonic: the clock.
    """

    def __init__(
        self, probe: Callable[[], T], *, ttl_seconds: float = 0.0, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._probe, self._ttl_seconds, self._monotonic = probe, ttl_seconds, monotonic
        self._lock = threading.Lock()
        self._run: Future[T] | None = None
        self._started_at = self._finished_at = 0.0

    def start(self) -> Future[T]:
        """Start the probe unless it is running or its result is cached; return its run."""
        with self._lock:
            run = self._run
            if run is None or (run.done() and self._monotonic() - self._finished_at >= self._ttl_seconds):
                run = self._run = Future()
                self._started_at = self._monotonic()
                # A daemon, so that a hanging probe does not keep the process from ending.
                threading.Thread(target=self._finish, args=(run,), name="probe", daemon=True).start()
            return run

    def result(self, timeout: float) -> T:
        """Return the probe's result, or raise its exception.

        Raises:
            ProbeTimeout: there is no result ``timeout`` seconds after any caller started the probe.
        """
        run = self.start()
        wait([run], max(0.0, self._started_at + timeout - self._monotonic()))
        if not run.done():
            raise ProbeTimeout
        if (error := run.exception()) is not None:
            # Raised for every caller, so its traceback would otherwise grow each time.
            raise error.with_traceback(None)
        return run.result()

    def _finish(self, run: Future[T]) -> None:
        try:
            value = self._probe()
        except Exception as error:  # noqa: BLE001 - raised by `result`
            self._finished_at = self._monotonic()
            run.set_exception(error)
        else:
            self._finished_at = self._monotonic()
            run.set_result(value)
