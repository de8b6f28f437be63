"""Measured durations, and the clocks of tests."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, Self, TypeVar

from tests.support.waiting import PATIENCE, eventually

if TYPE_CHECKING:
    from collections.abc import Callable


T = TypeVar("T")

SLACK_SECONDS: Final = 1.0 * PATIENCE
"""The time that a call may take beyond the promise on any machine: connections, encoding, the test's own servers."""
LATE_FACTOR: Final = 5.0
"""A call waits for more than one thread and process, each of them as late as the one that is measured."""
MAX_STALL_SECONDS: Final = 5.0 * PATIENCE
"""How long a server or a worker may stand still, which no thread of the test's process notices."""
_NAP_SECONDS: Final = 0.01


class Measured:
    """A block whose duration is measured.

    Attributes:
        seconds: the duration of the block, by this process's monotonic clock.
        late_seconds: how long a thread beside it was kept from running.
    """

    def __init__(self) -> None:
        self.seconds: float = 0.0
        self.late_seconds: float = 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._measure, name="measures-lateness", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._began = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self._began
        self._is_over.set()
        self._thread.join()

    def allowed(self, promised_seconds: float) -> float:
        """Return the bound on this machine for a promised duration."""
        return promised_seconds + SLACK_SECONDS + LATE_FACTOR * self.late_seconds

    def at_most(self, promised_seconds: float) -> None:
        """Fail if the block took longer than promised, with the allowance for this machine."""
        allowed = self.allowed(promised_seconds)
        assert self.seconds < allowed, (
            f"took {self.seconds:.2f} s, promised are {promised_seconds:g} s; threads ran late by "
            f"{self.late_seconds:.2f} s in all, so that {allowed:.2f} s were allowed"
        )

    def _measure(self) -> None:
        while not self._is_over.is_set():
            began, worked = time.monotonic(), time.thread_time()
            self._is_over.wait(_NAP_SECONDS)
            sum(range(10_000))
            worked = time.thread_time() - worked
            self.late_seconds += max(0.0, time.monotonic() - began - _NAP_SECONDS - worked)


def promptly(condition: Callable[[], T], what: str, promised_seconds: float) -> T:
    """Wait for a state like `eventually`, and fail if it came later than promised plus the machine's allowance.

    It may depend on other processes, which may stand still.
    """
    with Measured() as took:
        value = eventually(condition, what)
    took.at_most(promised_seconds + MAX_STALL_SECONDS)
    return value


class Time:
    """A monotonic clock, in seconds; ``now`` may be set."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now
