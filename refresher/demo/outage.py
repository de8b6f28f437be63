"""The outage in the middle: the worker is killed, readers go on, and a second worker takes over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from refresher.demo.environment import LEASE_SECONDS, QUEUE_TTL_SECONDS
from refresher.demo.errors import DemoError
from refresher.demo.workers import START_SECONDS

if TYPE_CHECKING:
    from refresher.checker.writer import Writer
    from refresher.demo.counts import RunState
    from refresher.demo.readers import Readers
    from refresher.demo.workers import Workers

PAUSE_SECONDS: Final = 2.0
QUIET_SECONDS: Final = 1.0
"""Time before the kill without hard invalidations, so that dropped values are loaded again by then."""

WARMING_SECONDS: Final = 20.0
"""Longest wait of the kill for the first values to be loaded, before which it would show nothing."""

RECOVERY_SECONDS: Final = LEASE_SECONDS + QUEUE_TTL_SECONDS + 1.0
"""Time, besides the wait in the queue, within which everything that is read is refreshed again (I4)."""

QUEUE_WAIT_SECONDS: Final = 10.0
LONG_QUEUE: Final = 100
"""Queue length above which a refresh waits for longer than that on a machine with other work."""

MAX_RECOVERY_SECONDS: Final = 60.0
SETTLE_SECONDS: Final = 0.75
"""Delay of reports about the time without a worker."""


class Stage(Enum):
    """Phase of the outage, with the text on the display as its value."""

    AHEAD = "worker alive"
    WITHOUT_WORKER = "worker killed (SIGKILL), reads continue"
    STARTING = "no worker yet, reads continue; a new one is starting"
    RECOVERING = "new worker alive, catching up"
    OVER = "new worker alive"

    @property
    def has_worker(self) -> bool:
        """True while a worker consumes messages."""
        return self not in {Stage.WITHOUT_WORKER, Stage.STARTING}


@dataclass(frozen=True, slots=True)
class OutageReport:
    """Figures of the outage; durations in seconds, ``killed_at_seconds`` since the start of the reads.

    ``stale_keys`` keys grew stale meanwhile; ``recovered_seconds`` is the time from the new worker's readiness until
    the last of them was loaded again (negative: before it reported ready). ``still_stale_keys`` of them were not.
    """

    killed_at_seconds: float
    without_seconds: float
    first_refresh_seconds: float
    stale_keys: int
    recovered_seconds: float
    still_stale_keys: int = 0


class Outage:
    """Runs the outage step by step from the caller's loop. Times are monotonic seconds.

    Args:
        workers, readers, writer, state: the run's.
        waiting: returns the number of queued refreshes.
        kill_at: the earliest time of the kill.
    """

    def __init__(
        self,
        workers: Workers,
        readers: Readers,
        writer: Writer,
        state: RunState,
        *,
        waiting: Callable[[], int],
        kill_at: float,
    ) -> None:
        self.stage: Stage = Stage.AHEAD
        self._workers, self._readers, self._writer = workers, readers, writer
        self._state, self._waiting = state, waiting
        self._kill_at, self._killed_at, self._started_at, self._ready_at = kill_at, 0.0, 0.0, 0.0
        self._now = 0.0
        self._steps = self._run()

    def step(self, now: float) -> None:
        """Take the steps that are due.

        Raises:
            DemoError: the second worker did not start.
        """
        self._now = now
        next(self._steps, None)

    def report(self, began_at: float) -> OutageReport | None:
        """Return the figures, or None if the outage did not happen or is not over."""
        if self.stage is not Stage.OVER:
            return None
        recovered = self._state.recovered
        last = max((recovered[key] for key in self._state.went_stale & recovered.keys()), default=self._ready_at)
        return OutageReport(
            killed_at_seconds=self._killed_at - began_at,
            without_seconds=self._ready_at - self._killed_at,
            first_refresh_seconds=(self._workers.current.first_commit_at or self._started_at) - self._started_at,
            stale_keys=len(self._state.went_stale),
            recovered_seconds=last - self._ready_at,
            still_stale_keys=len(self._state.still_stale()),
        )

    def _run(self) -> Iterator[None]:
        """Run the outage; each ``yield`` waits for the caller's next step."""
        while not self._is_kill_due():
            yield
        self._workers.kill()
        self._readers.set_worker_is_gone(gone=True)
        self._killed_at = self._now
        self._advance(Stage.WITHOUT_WORKER, "worker killed (SIGKILL, with its pool); reads continue")
        while self._now < self._killed_at + PAUSE_SECONDS:
            yield
        self._workers.start()
        self._started_at = self._now
        self._advance(Stage.STARTING, "a second worker is starting")
        while (ready_at := self._workers.ready_at()) is None:
            if self._now >= self._started_at + START_SECONDS:
                raise DemoError(f"the second worker was not ready within {START_SECONDS:g} s")
            yield
        self._readers.set_worker_is_gone(gone=False)
        self._writer.soft_only = False
        self._ready_at = ready_at
        self._advance(Stage.RECOVERING, f"the new worker is ready; {len(self._state.went_stale)} keys grew stale")
        while self._now < ready_at + SETTLE_SECONDS:
            yield
        yield from self._recover()

    def _is_kill_due(self) -> bool:
        self._writer.soft_only = self._now >= self._kill_at - QUIET_SECONDS
        if self._now < self._kill_at:
            return False
        return self._state.is_warm(self._now) or self._now >= self._kill_at + WARMING_SECONDS

    def _recover(self) -> Iterator[None]:
        """Check the time until everything is fresh against the guarantee plus the wait in a long queue."""
        short_since, bound_seconds = self._ready_at, RECOVERY_SECONDS + QUEUE_WAIT_SECONDS
        while left := len(self._state.still_stale()):
            if (waiting := self._waiting()) > LONG_QUEUE:
                short_since = self._now
                if self._now >= self._ready_at + MAX_RECOVERY_SECONDS:
                    self._advance(
                        Stage.OVER,
                        f"{left} keys are still stale: {waiting} refreshes queued, this machine is too slow for them",
                    )
                    return
            elif self._now >= short_since + bound_seconds:
                self._state.checker.report(
                    f"{left} keys that grew stale without a worker were not refreshed within "
                    f"{bound_seconds:g} s after the new one was ready and the queue short"
                )
                self._advance(Stage.OVER, f"{left} keys are still stale")
                return
            yield
        self._advance(Stage.OVER, "all stale keys have been refreshed")

    def _advance(self, stage: Stage, sentence: str) -> None:
        self.stage = stage
        self._state.history.append((self._now, sentence))
