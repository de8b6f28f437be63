"""Heartbeat of a worker's main process."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from typing import Any


class Phase(StrEnum):
    """Phase of the main process."""

    CONNECTING = "connecting"
    CONSUMING = "consuming"
    STOPPING = "stopping"


class Heartbeat:
    """The last sign of life of the loop. Thread-safe, since each write is of a single value."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._beat_at = monotonic()
        self._can_beat = True
        self.phase: Phase = Phase.CONNECTING

    @property
    def silent_seconds(self) -> float:
        """Time since the last beat; 0 in a phase without beats."""
        if self.phase is Phase.STOPPING or not self._can_beat:
            return 0.0
        return self._monotonic() - self._beat_at

    def beat(self) -> None:
        """Record a beat."""
        self._beat_at = self._monotonic()

    def enter(self, phase: Phase, *, can_beat: bool) -> None:
        """Enter a phase, which has beats if ``can_beat``. STOPPING is final."""
        self.beat()
        if self.phase is not Phase.STOPPING:
            self.phase, self._can_beat = phase, can_beat


def heartbeat_of(app: Any) -> Heartbeat:
    """Return the heartbeat of a Celery app, or an unused one if the app was not set up for refreshes."""
    heartbeat: Heartbeat = getattr(app, "refresher_loop_heartbeat", None) or Heartbeat()
    return heartbeat
