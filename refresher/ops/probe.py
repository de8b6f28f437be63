"""Asks what may never answer: on a thread of its own, at most one at a time, and the answer is kept for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, NoReturn, TypeVar

T = TypeVar("T")


class ProbeTimeout(Exception):
    """What was asked has not answered in time. It is still being asked, and nobody asks it a second time meanwhile."""


class Asked(Generic[T]):
    """Something that is asked, and does not hold up who wants to know. Thread-safe.

    ::

        within(2) ──▶ thread: ask() ──────────▶ answer, kept for kept_seconds
                  └─▶ 2 s are over: ProbeTimeout, at once for everyone after, until it answers

    Args:
        ask: what to call; may raise, may hang.
        kept_seconds: for how long an answer, an error too, stands for the next ones.
        monotonic: the clock.
    """

    def __init__(
        self, ask: Callable[[], T], *, kept_seconds: float = 0.0, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask, self._kept_seconds, self._monotonic = ask, kept_seconds, monotonic
        self._lock = threading.Lock()
        self._done: threading.Event | None = None  # while it is being asked
        self._began_at = 0.0
        self._answered_at: float | None = None
        self._answer: Callable[[], T] = _none_yet

    def begin(self) -> threading.Event | None:
        """Ask now, unless that is going on or an answer stands; returns what is set once there is one."""
        with self._lock:
            if self._done is None and not self._is_kept():
                self._done, self._began_at = threading.Event(), self._monotonic()
                # A daemon: one that hangs must not keep the process from ending.
                threading.Thread(target=self._run, args=(self._done,), name="asked", daemon=True).start()
            return self._done

    def within(self, seconds: float) -> T:
        """Return the answer, or raise what was raised instead of it.

        Raises:
            ProbeTimeout: there is none ``seconds`` after it was asked, by whomever.
        """
        done = self.begin()
        if done is not None and not done.wait(max(0.0, self._began_at + seconds - self._monotonic())):
            raise ProbeTimeout
        return self._answer()

    def _is_kept(self) -> bool:
        return self._answered_at is not None and self._monotonic() - self._answered_at < self._kept_seconds

    def _run(self, done: threading.Event) -> None:
        try:
            value = self._ask()
        except Exception as error:  # noqa: BLE001 - raised where it was asked for
            self._settle(done, _raising(error))
        else:
            self._settle(done, lambda: value)

    def _settle(self, done: threading.Event, answer: Callable[[], T]) -> None:
        with self._lock:
            self._answer, self._answered_at, self._done = answer, self._monotonic(), None
        done.set()


def _none_yet() -> NoReturn:
    raise ProbeTimeout


def _raising(error: Exception) -> Callable[[], NoReturn]:
    def answer() -> NoReturn:
        # It is raised for each who asks: without this, its traceback would grow each time.
        raise error.with_traceback(None)

    return answer
