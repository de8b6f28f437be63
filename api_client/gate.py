"""A gate at which thousands of threads may wait: they go through a few at a time."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from threading import Lock
from typing import Final

AT_A_TIME: Final = 32


class Gate:
    """What a `threading.Event` that is set once does, but those who wait are woken a few at a time.

    Each that has been woken wakes the next one. All at once they would wait for the interpreter's lock, and each that
    waits for that one looks every 5 ms: thousands of them take the machine from Redis, and from themselves.
    """

    def __init__(self) -> None:
        self._waiting: deque[Lock] = deque()
        self._is_open = False

    @property
    def is_open(self) -> bool:
        """Whether all go through."""
        return self._is_open

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def open(self) -> None:
        """Let all through who wait, and all who will come."""
        self._is_open = True
        for _ in range(min(AT_A_TIME, len(self._waiting))):
            self._wake_next()

    def wait(self, timeout_seconds: float = -1, *, first: bool = False) -> bool:
        """Wait until it is open; False when the time ran out before.

        Args:
            timeout_seconds: negative: for as long as it takes.
            first: before all others.
        """
        if self.is_open:
            return True
        own = Lock()
        own.acquire()
        if first:
            self._waiting.appendleft(own)
        else:
            self._waiting.append(own)
        if self._is_open:  # since the look
            self._wake_next()
        try:
            came = own.acquire(timeout=timeout_seconds)
        except BaseException:  # an interrupt; who is woken instead of it, wakes the next one
            self._leave(own)
            raise
        if not came:
            return self._leave(own)
        self._wake_next()
        return True

    def _leave(self, own: Lock) -> bool:
        """Go without having been woken; True where that was too late, and it was."""
        try:
            self._waiting.remove(own)
        except ValueError:
            self._wake_next()
            return True
        return False

    def _wake_next(self) -> None:
        with suppress(IndexError):
            self._waiting.popleft().release()
