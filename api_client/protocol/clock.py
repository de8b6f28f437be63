"""Redis' clock in a reader: an offset to its own monotonic clock.

The worker stamps entries by Redis TIME, so a reader compares by it too: a host whose wall clock is off by an hour
neither stampedes nor serves stale as fresh. Clocks decide when to refresh, never which value is newer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

RESYNC_SECONDS: Final = 10.0
GRANT_SECONDS: Final = 1.0
TOLERANCE_US: Final = 1_000_000
"""Redis' clock may be this far behind a stamp of its own before it counts as set back: as in `lua/prelude.lua`."""


def monotonic_seconds() -> float:
    """Return the monotonic clock, in seconds. Looked up at each call, so that a test may freeze it."""
    return time.monotonic()


class RedisClock:
    """Redis' time in microseconds, by its last known offset. Reading it costs no network.

    The offset is taken at the middle of the round trip of a TIME (`sync`), so it is off by half of that at most; it is
    due again every 10 s (`is_due_once`).
    """

    def __init__(self, monotonic: Callable[[], float] = monotonic_seconds) -> None:
        self._monotonic = monotonic
        self._offset_us: int | None = None
        self._resync_at = self._asked_at = 0.0

    @property
    def is_known(self) -> bool:
        """True once the clock has been synced."""
        return self._offset_us is not None

    def is_due_once(self) -> bool:
        """Return whether the offset is older than 10 s, to one caller per second; while it is unknown, to every one."""
        now = self._monotonic()
        if now < self._resync_at:
            return False
        if self._offset_us is not None:
            self._asked_at, self._resync_at = now, now + GRANT_SECONDS
        return True

    def now_us(self) -> int:
        """Return Redis' time now, in µs since 1970.

        Raises:
            RuntimeError: it has never been synced.
        """
        return self.at_us(self._monotonic())

    def at_us(self, monotonic_now: float) -> int:
        """Return Redis' time at a moment of the monotonic clock (s), in µs since 1970.

        Raises:
            RuntimeError: it has never been synced.
        """
        if self._offset_us is None:
            raise RuntimeError("Redis' clock was never synced")
        return int(monotonic_now * 1e6) + self._offset_us

    def monotonic_at(self, redis_us: int) -> float:
        """Return the moment of the monotonic clock (s) at which Redis' clock shows ``redis_us``."""
        return (redis_us - self.at_us(0.0)) / 1e6

    def sync(self, redis_us: int, *, asked_at: float) -> None:
        """Set the clock to ``redis_us``, read between ``asked_at`` (monotonic seconds) and now."""
        heard_at = self._monotonic()
        self._offset_us = redis_us - int((asked_at + heard_at) / 2 * 1e6)
        self._asked_at, self._resync_at = heard_at, heard_at + RESYNC_SECONDS

    def check_against(self, stamp_us: int) -> None:
        """Be due soon, once a second at most, where a stamp is of the future: one of the clocks has been set."""
        if self.now_us() < stamp_us - TOLERANCE_US:
            self._resync_at = min(self._resync_at, self._asked_at + GRANT_SECONDS)

    def forget(self) -> None:
        """Be due at once: another node may have another clock."""
        self._resync_at = 0.0
