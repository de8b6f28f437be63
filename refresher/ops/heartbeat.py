"""Heartbeat of a worker's main process, and the step of Celery's consumer that beats."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:

    class _Step:
        """The used part of Celery's class, which has no types."""

        def __init__(self, parent: Any, **options: Any) -> None: ...
else:
    from celery.bootsteps import StartStopStep as _Step

BEAT_SECONDS: Final = 1.0


class Phase(StrEnum):
    """Phase of the main process."""

    CONNECTING = "connecting"
    CONSUMING = "consuming"
    STOPPING = "stopping"


class Heartbeat:
    """The last sign of life of the loop. Thread-safe: each write is of one value."""

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
        """Begin a phase. ``can_beat``: it has beats. STOPPING is final."""
        self.beat()
        if self.phase is not Phase.STOPPING:
            self.phase, self._can_beat = phase, can_beat


class HeartbeatStep(_Step):
    """A step of Celery's consumer that beats in its loop."""

    # The last to start before the loop: then the worker consumes.
    requires: ClassVar[tuple[str, ...]] = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._connecting(consumer)

    def start(self, consumer: Any) -> None:
        """Celery starts what needs the connection, and its loop after that."""
        # A green pool has no loop of Celery's.
        heartbeat_of(consumer.app).enter(Phase.CONSUMING, can_beat=consumer.hub is not None)

    def register_with_event_loop(self, consumer: Any, hub: Any) -> None:
        """Beat from now on, until the connection is lost: Celery cancels with it what was registered here."""
        hub.call_repeatedly(BEAT_SECONDS, heartbeat_of(consumer.app).beat)

    def stop(self, consumer: Any) -> None:
        """Celery has lost the connection, or ends."""
        self._connecting(consumer)

    def _connecting(self, consumer: Any) -> None:
        # Another consumer, an application's own, does not beat at its attempts.
        heartbeat_of(consumer.app).enter(Phase.CONNECTING, can_beat=hasattr(consumer, "beats_while_connecting"))


def heartbeat_of(app: Any) -> Heartbeat:
    """Return the heartbeat of a Celery app; an unused one where the app was not set up for refreshes."""
    heartbeat: Heartbeat = getattr(app, "refresher_loop_heartbeat", None) or Heartbeat()
    return heartbeat
