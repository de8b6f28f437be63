"""Whether the loop of a worker's main process goes round: the one that takes messages. It beats once a second.

::

    starting ──▶ connecting ──▶ consuming ──▶ connecting ──▶ …     beats in both; stopping: none is wanted any more

A worker that waits for its broker beats, since it is tried once a second. One that hangs does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:

    class _Step:
        """What is used of Celery's class, which has no types."""

        def __init__(self, parent: Any, **options: Any) -> None: ...
else:
    from celery.bootsteps import StartStopStep as _Step

BEAT_SECONDS: Final = 1.0


class Phase(StrEnum):
    """What the main process is at."""

    CONNECTING = "connecting"
    CONSUMING = "consuming"
    STOPPING = "stopping"


class Pulse:
    """The last sign of life of the loop. Thread-safe: what is written is one value each."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._beat_at = monotonic()
        self._is_heard = True
        self.phase: Phase = Phase.CONNECTING

    @property
    def silent_seconds(self) -> float:
        """For how long there was no beat; 0 where none can be heard, or is wanted."""
        if self.phase is Phase.STOPPING or not self._is_heard:
            return 0.0
        return self._monotonic() - self._beat_at

    def beat(self) -> None:
        """Note a beat."""
        self._beat_at = self._monotonic()

    def enter(self, phase: Phase, *, is_heard: bool) -> None:
        """Note what begins. ``is_heard``: it beats. The end is final."""
        self.beat()
        if self.phase is not Phase.STOPPING:
            self.phase, self._is_heard = phase, is_heard


class PulseStep(_Step):
    """A part of Celery's consumer that beats in its loop."""

    # The last to start before the loop: then the worker consumes.
    requires: ClassVar[tuple[str, ...]] = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._connecting(consumer)

    def start(self, consumer: Any) -> None:
        """Celery starts what needs the connection, and its loop after that."""
        # A green pool has no loop that could be looked at.
        pulse_of(consumer.app).enter(Phase.CONSUMING, is_heard=consumer.hub is not None)

    def register_with_event_loop(self, consumer: Any, hub: Any) -> None:
        """Beat from now on, until the connection is lost: Celery cancels with it what was registered here."""
        hub.call_repeatedly(BEAT_SECONDS, pulse_of(consumer.app).beat)

    def stop(self, consumer: Any) -> None:
        """Celery has lost the connection, or ends."""
        self._connecting(consumer)

    def _connecting(self, consumer: Any) -> None:
        # Another consumer, an application's own, does not tell of its attempts.
        pulse_of(consumer.app).enter(Phase.CONNECTING, is_heard=hasattr(consumer, "beats_while_connecting"))


def pulse_of(app: Any) -> Pulse:
    """Return the pulse of a Celery app; one that nobody looks at where the app was not set up for refreshes."""
    pulse: Pulse = getattr(app, "refresher_pulse", None) or Pulse()
    return pulse
