"""The outage in the middle: the worker is killed, readers continue, a second worker takes over."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from refresher.demo.environment import LEASE_SECONDS, QUEUE_TTL_SECONDS
from refresher.demo.errors import DemoError
from refresher.demo.processes import START_SECONDS

if TYPE_CHECKING:
    from refresher.checker.writer import Writer
    from refresher.demo.processes import Workers
    from refresher.demo.readers import Readers
    from refresher.demo.state import RunState
    from refresher.demo.worker_events import WorkerEvents

PAUSE_SECONDS: Final = 2.0
QUIET_SECONDS: Final = 1.0
"""No hard invalidation this long before the kill, so that the dropped value is loaded again by then."""

WARMING_SECONDS: Final = 20.0
"""How long the kill waits for the first values to be loaded: before that it would show nothing."""

RECOVERY_SECONDS: Final = LEASE_SECONDS + QUEUE_TTL_SECONDS + 1.0
"""Everything that is read is refreshed again within this plus the wait in the queue (I4)."""

QUEUE_WAIT_SECONDS: Final = 10.0
LONG_QUEUE: Final = 100
"""With more refreshes queued, one waits for longer than that on a machine that has other work."""

MAX_RECOVERY_SECONDS: Final = 60.0
SETTLE_SECONDS: Final = 0.75


class Stage(Enum):
    """Phase of the outage."""

    AHEAD = "ahead"
    WITHOUT_WORKER = "without worker"
    STARTING = "starting"
    RECOVERING = "recovering"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Outage:
    """Figures of the outage; durations in seconds, ``killed_at_seconds`` since the begin of the reads.

    ``stale_keys`` grew stale meanwhile; ``recovered_seconds`` is when the last of them was loaded again, counted from
    when the new worker was ready (negative: before it said so). ``still_stale_keys`` of them were not.
    """

    killed_at_seconds: float
    without_seconds: float
    first_refresh_seconds: float
    stale_keys: int
    recovered_seconds: float
    still_stale_keys: int = 0


class Chaos:
    """Runs the outage step by step from the caller's loop. Times are monotonic seconds."""

    def __init__(
        self,
        workers: Workers,
        readers: Readers,
        writer: Writer,
        events: WorkerEvents,
        state: RunState,
        *,
        kill_at: float,
    ) -> None:
        self.stage: Stage = Stage.AHEAD
        self._workers, self._readers, self._writer = workers, readers, writer
        self._events, self._state = events, state
        self._kill_at, self._killed_at, self._started_at, self._ready_at = kill_at, 0.0, 0.0, 0.0
        self._short_since = 0.0

    @property
    def is_over(self) -> bool:
        """Whether everything is as before."""
        return self.stage is Stage.OVER

    def step(self, now: float) -> None:
        """Take the step that is due.

        Raises:
            DemoError: the second worker did not start.
        """
        if self.stage is Stage.AHEAD:
            self._writer.soft_only = now >= self._kill_at - QUIET_SECONDS
            if now >= self._kill_at and (self._state.is_warm(now) or now >= self._kill_at + WARMING_SECONDS):
                self._kill(now)
        elif self.stage is Stage.WITHOUT_WORKER and now >= self._killed_at + PAUSE_SECONDS:
            self._workers.start()
            self._advance(Stage.STARTING, now, "a second worker is starting")
            self._started_at = now
        elif self.stage is Stage.STARTING:
            self._check_ready(now)
        elif self.stage is Stage.RECOVERING:
            self._check_recovered(now)

    def outage_report(self, began_at: float) -> Outage | None:
        """Return the figures; None when it did not happen, or is not over."""
        if not self.is_over:
            return None
        recovered = self._state.recovered
        last = max((recovered[key] for key in self._state.went_stale & recovered.keys()), default=self._ready_at)
        with self._events.lock:
            first = self._events.counts.first_commit_at.get(self._workers.name, self._started_at)
        return Outage(
            killed_at_seconds=self._killed_at - began_at,
            without_seconds=self._ready_at - self._killed_at,
            first_refresh_seconds=first - self._started_at,
            stale_keys=len(self._state.went_stale),
            recovered_seconds=last - self._ready_at,
            still_stale_keys=len(self._state.still_stale()),
        )

    def _kill(self, now: float) -> None:
        self._workers.kill()
        self._readers.set_worker_is_gone(gone=True)
        self._events.forget_running()
        self._killed_at = now
        self._advance(Stage.WITHOUT_WORKER, now, "worker killed (SIGKILL, with its pool); reads continue")

    def _check_ready(self, now: float) -> None:
        ready_at = self._workers.ready_at()
        if ready_at is None:
            if now >= self._started_at + START_SECONDS:
                raise DemoError(f"the second worker was not ready within {START_SECONDS:g} s")
            return
        self._readers.set_worker_is_gone(gone=False)
        self._writer.soft_only = False
        self._ready_at = self._short_since = ready_at
        self._advance(Stage.RECOVERING, now, f"the new worker is ready; {len(self._state.went_stale)} keys grew stale")

    def _check_recovered(self, now: float) -> None:
        left = self._state.still_stale()
        if now < self._ready_at + SETTLE_SECONDS:
            return  # reports of the time before are still on their way
        if not left:
            self._advance(Stage.OVER, now, "all stale keys have been refreshed")
        else:
            self._check_promise(now, len(left))

    def _check_promise(self, now: float, left: int) -> None:
        """Compare the time with the guarantee, to which the wait in a long queue is added."""
        waiting = self._events.waiting()
        if waiting > LONG_QUEUE:
            self._short_since = now
            if now >= self._ready_at + MAX_RECOVERY_SECONDS:
                sentence = f"{left} keys are still stale: {waiting} refreshes queued, this machine is too slow for them"
                self._advance(Stage.OVER, now, sentence)
        elif now >= self._short_since + RECOVERY_SECONDS + QUEUE_WAIT_SECONDS:
            self._state.checker.report(
                f"{left} keys that grew stale without a worker were not refreshed within "
                f"{RECOVERY_SECONDS + QUEUE_WAIT_SECONDS:g} s after the new one was ready and the queue short"
            )
            self._advance(Stage.OVER, now, f"{left} keys are still stale")

    def _advance(self, stage: Stage, now: float, sentence: str) -> None:
        self.stage = stage
        self._state.history.append((now, sentence))
