"""A circuit breaker: it refuses calls at once after repeated failures, and heals by a probe."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

from api_client.protocol.clock import monotonic_seconds
from api_client.threads import Mutex


class Breaker:
    """Counts failures in a row, opens at ``threshold``, and then lets one probe through after each pause.

    The pause doubles from ``first_pause_seconds`` up to ``max_pause_seconds`` while probes fail; one success closes the
    breaker. While it is open only a failure of its probe counts, since calls that were in progress when it opened
    belong to the same outage. A probe is identified by its thread or task, which both calls `allows` and reports.
    Thread-safe.

    Attributes:
        reason: the reason of the last failure, for the error of a refused call.
    """

    def __init__(
        self,
        *,
        threshold: int = 5,
        first_pause_seconds: float = 0.25,
        max_pause_seconds: float = 5.0,
        monotonic: Callable[[], float] = monotonic_seconds,
    ) -> None:
        self._threshold = threshold
        self._first_pause, self._max_pause = first_pause_seconds, max_pause_seconds
        self._monotonic = monotonic
        self._lock = Mutex()
        self._failures = 0
        self.failed_at: float = 0.0
        """Time of the last call if it failed, by the breaker's clock; otherwise 0."""
        self.reason: str = ""
        self._pause = first_pause_seconds
        self._refuses_until = 0.0
        self._probes = 0
        self._probing = 0  # the number of the probe that has not reported; 0 if there is none
        self._own_probe: ContextVar[int] = ContextVar("probe", default=0)

    @property
    def is_open(self) -> bool:
        """True while calls are answered without being tried."""
        return self._failures >= self._threshold

    def is_waiting(self) -> bool:
        """Return whether a call would be refused now, without using up the probe, which is for a caller of `allows`."""
        return self.is_open and self._monotonic() < self._refuses_until

    def allows(self) -> bool:
        """Return whether a call may be tried: always while closed, one probe per pause while open."""
        if self._failures < self._threshold:
            return True
        with self._lock:
            if self._monotonic() < self._refuses_until:
                return False
            if self._failures < self._threshold:  # closed in the meantime
                return True
            # The next caller waits for this probe's verdict, or for another pause if it never reports.
            self._probes += 1
            self._probing = self._probes
            self._own_probe.set(self._probes)
            self._refuses_until = self._monotonic() + self._pause
            return True

    def succeeded(self) -> None:
        """Report a call that succeeded."""
        if self._failures:
            with self._lock:
                self._failures, self._pause, self._probing = 0, self._first_pause, 0
                self.failed_at = 0.0

    def failed(self, reason: str = "") -> None:
        """Report a call that failed for a ``reason`` that the next call would meet too."""
        self.reason = reason
        with self._lock:
            self.failed_at = self._monotonic()
            if self._failures < self._threshold:
                self._failures += 1
                if self._failures < self._threshold:
                    return
            elif self._probing and self._own_probe.get() == self._probing:
                self._pause = min(self._pause * 2, self._max_pause)
            else:
                return
            self._probing = 0
            self._refuses_until = self._monotonic() + self._pause
