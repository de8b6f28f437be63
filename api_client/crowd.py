"""A crowd of threads that read one key: reads that have not been sent yet are one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from api_client.gate import Gate
from api_client.keys import CacheKey

FEW: Final = 16


class _Turn:
    """One read of a key, for all who came before it was sent."""

    __slots__ = ("before", "error", "is_sent", "over", "raw", "was_read")

    def __init__(self, before: _Turn | None) -> None:
        self.before = before
        self.over = Gate()
        self.is_sent = self.was_read = False
        self.raw: bytes | None = None
        self.error: Exception | None = None


class Crowd:
    """Reads entries, each thread on its own, until more than `FEW` do at a time.

    From then on, those who want the same key share one read: it is sent when the one before it has ended, for all who
    have come by then. It is never one that was under way when they came, for that could be from before an invalidation
    that they know of. So thousands of threads on one key are a few round trips and connections, not thousands. Where
    a shared read fails, those who followed share one more: one lost reply must not be thousands of errors.

    Args:
        read: reads one entry (`CacheLink.read`).
    """

    def __init__(self, read: Callable[[CacheKey], bytes | None]) -> None:
        self._read = read
        self._inside: list[None] = []  # its length counts: appending and popping need no lock
        self._lock = threading.Lock()
        self._turns: dict[str, _Turn] = {}

    def read(self, key: CacheKey) -> bytes | None:
        """Return the entry's bytes; errors as for `CacheLink.read`."""
        inside = self._inside
        inside.append(None)
        try:
            return self._read(key) if len(inside) <= FEW else self._shared(key)
        finally:
            inside.pop()

    def _shared(self, key: CacheKey) -> bytes | None:
        may_repeat = True
        while True:
            with self._lock:
                last = self._turns.get(key.entry)
                if last is None or last.is_sent:
                    turn = self._turns[key.entry] = _Turn(last)
                else:
                    turn = last
            if turn is not last:
                return self._lead(key, turn)
            turn.over.wait()
            if turn.was_read:
                return turn.raw
            if turn.error is not None:
                if not may_repeat:
                    raise turn.error
                may_repeat = False
            # Else whoever read was interrupted, which says nothing of Redis.

    def _lead(self, key: CacheKey, turn: _Turn) -> bytes | None:
        try:
            if turn.before is not None:
                turn.before.over.wait(first=True)
                turn.before = None
            with self._lock:
                turn.is_sent = True
            turn.raw = self._read(key)
            turn.was_read = True
        except Exception as error:
            turn.error = error
            raise
        else:
            return turn.raw
        finally:
            with self._lock:
                turn.is_sent = True
                if self._turns.get(key.entry) is turn:
                    del self._turns[key.entry]
            turn.over.open()
