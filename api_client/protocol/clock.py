"""Redis' clock in a reader, as an offset to the reader's monotonic clock.

The worker stamps entries with Redis TIME, so a reader compares with it too: a host whose wall clock is off by an hour
neither stampedes nor serves stale as fresh. Clocks decide when to refresh, never which value is newer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

RESYNC_SECONDS: Final = 10.0
GRANT_SECONDS: Final = 1.0
TOLERANCE_US: Final = 1_000_000
"""Lag of Redis' clock behind a stamp of its own, beyond which it counts as set back; as in `lua/prelude.lua`."""


def monotonic_seconds() -> float:
    """Return the monotonic time in seconds. The clock is looked up at each call, so that a test can freeze it."""
    return time.monotonic()


class RedisClock:
    """Redis' time in microseconds, by its last known offset. Reading it needs no network.

    The offset is taken at the middle of a TIME's round trip (`sync`), so it is off by at most half of that. A new sync
    is due every 10 s (`is_due_once`).
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
        """Return whether a sync is due: for one caller per second after 10 s, for every caller before the first."""
        now = self._monotonic()
        if now < self._resync_at:
            return False
        if self._offset_us is not None:
            self._asked_at, self._resync_at = now, now + GRANT_SECONDS
        return True

    def now_us(self) -> int:
        """Return Redis' time now, in µs since 1970.

        Raises:
            RuntimeError: the clock has never been synced.
        """
        return self.at_us(self._monotonic())

    def at_us(self, monotonic_now: float) -> int:
        """Return Redis' time at a monotonic time (in seconds), in µs since 1970.

        Raises:
            RuntimeError: the clock has never been synced.
        """
        if self._offset_us is None:
            raise RuntimeError("Redis' clock was never synced")
        return int(monotonic_now * 1e6) + self._offset_us

    def monotonic_at(self, redis_us: int) -> float:
        """Return the monotonic time in seconds at which Redis' clock shows ``redis_us``."""
        return (redis_us - self.at_us(0.0)) / 1e6

    def sync(self, redis_us: int, *, asked_at: float) -> None:
        """Set the clock to ``redis_us``, read between ``asked_at`` (monotonic seconds) and now."""
        heard_at = self._monotonic()
        self._offset_us = redis_us - int((asked_at + heard_at) / 2 * 1e6)
        self._asked_at, self._resync_at = heard_at, heard_at + RESYNC_SECONDS

    def check_against(self, stamp_us: int) -> None:
        """Make a sync due, at most once a second, if a stamp lies in the future: one of the clocks has been set."""
        if self.now_us() < stamp_us - TOLERANCE_US:
            self._resync_at = min(self._resync_at, self._asked_at + GRANT_SECONDS)

    def forget(self) -> None:
        """Make a sync due at once, since another node may have another clock."""
        self._resync_at = 0.0
