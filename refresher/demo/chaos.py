"""The accident in the middle: the worker is killed, the readers go on, another worker takes over."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from refresher.demo.errors import DemoError
from refresher.demo.places import LEASE_SECONDS, QUEUE_TTL_SECONDS
from refresher.demo.processes import START_SECONDS

if TYPE_CHECKING:
    from refresher.checker.writer import Writer
    from refresher.demo.board import Board
    from refresher.demo.processes import Workers
    from refresher.demo.readers import Readers
    from refresher.demo.worker_events import WorkerEvents

PAUSE_SECONDS: Final = 2.0
QUIET_SECONDS: Final = 1.0
"""No hard invalidation this long before the kill, so that what it took away is back by then."""

WARMING_SECONDS: Final = 20.0
"""While the first values are still being loaded an accident would show nothing: it waits for up to this long."""

RECOVERY_SECONDS: Final = LEASE_SECONDS + QUEUE_TTL_SECONDS + 1.0
"""Within this, and what a refresh may wait in the queue, everything that is read is refreshed again (I4)."""

QUEUE_WAIT_SECONDS: Final = 10.0
LONG_QUEUE: Final = 100
"""With more than so many waiting, a refresh waits for longer than that on a machine that has other work."""

MAX_RECOVERY_SECONDS: Final = 60.0
SETTLE_SECONDS: Final = 0.75


class Stage(Enum):
    """How far the accident is."""

    AHEAD = "ahead"
    WITHOUT_WORKER = "without worker"
    STARTING = "starting"
    RECOVERING = "recovering"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Accident:
    """What came of it; durations in seconds, ``killed_at_seconds`` since the begin of the reads.

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
    """Does it step by step, as time comes; the caller's loop goes on in between. Times are monotonic seconds."""

    def __init__(
        self, workers: Workers, readers: Readers, writer: Writer, events: WorkerEvents, board: Board, *, kill_at: float
    ) -> None:
        self.stage: Stage = Stage.AHEAD
        self._workers, self._readers, self._writer = workers, readers, writer
        self._events, self._board = events, board
        self._kill_at, self._killed_at, self._started_at, self._ready_at = kill_at, 0.0, 0.0, 0.0
        self._short_since = 0.0

    @property
    def is_over(self) -> bool:
        """Whether everything is as before."""
        return self.stage is Stage.OVER

    def step(self, now: float) -> None:
        """Do what is due.

        Raises:
            DemoError: the other worker did not start.
        """
        if self.stage is Stage.AHEAD:
            self._writer.soft_only = now >= self._kill_at - QUIET_SECONDS
            if now >= self._kill_at and (self._board.is_warm(now) or now >= self._kill_at + WARMING_SECONDS):
                self._kill(now)
        elif self.stage is Stage.WITHOUT_WORKER and now >= self._killed_at + PAUSE_SECONDS:
            self._workers.start()
            self._go_on(Stage.STARTING, now, "another worker is starting")
            self._started_at = now
        elif self.stage is Stage.STARTING:
            self._look_whether_ready(now)
        elif self.stage is Stage.RECOVERING:
            self._look_whether_recovered(now)

    def account(self, began_at: float) -> Accident | None:
        """Tell what came of it; None when it did not happen, or is not over."""
        if not self.is_over:
            return None
        recovered = self._board.recovered
        last = max((recovered[key] for key in self._board.went_stale & recovered.keys()), default=self._ready_at)
        with self._events.lock:
            first = self._events.counts.first_commit_at.get(self._workers.name, self._started_at)
        return Accident(
            killed_at_seconds=self._killed_at - began_at,
            without_seconds=self._ready_at - self._killed_at,
            first_refresh_seconds=first - self._started_at,
            stale_keys=len(self._board.went_stale),
            recovered_seconds=last - self._ready_at,
            still_stale_keys=len(self._board.still_stale()),
        )

    def _kill(self, now: float) -> None:
        self._workers.kill()
        self._readers.set_worker_is_gone(gone=True)
        self._events.forget_running()
        self._killed_at = now
        self._go_on(Stage.WITHOUT_WORKER, now, "worker killed (SIGKILL, pool and all); reads go on")

    def _look_whether_ready(self, now: float) -> None:
        ready_at = self._workers.ready_at()
        if ready_at is None:
            if now >= self._started_at + START_SECONDS:
                raise DemoError(f"the second worker was not ready within {START_SECONDS:g} s")
            return
        self._readers.set_worker_is_gone(gone=False)
        self._writer.soft_only = False
        self._ready_at = self._short_since = ready_at
        self._go_on(Stage.RECOVERING, now, f"the new worker is ready; {len(self._board.went_stale)} keys grew stale")

    def _look_whether_recovered(self, now: float) -> None:
        left = self._board.still_stale()
        if now < self._ready_at + SETTLE_SECONDS:
            return  # what the readers saw of the time before is still on its way
        if not left:
            self._go_on(Stage.OVER, now, "all that grew stale meanwhile has been refreshed")
        else:
            self._judge(now, len(left))

    def _judge(self, now: float, left: int) -> None:
        """Hold the time against the promise. What a refresh waits in a long queue comes on top, however long it is."""
        waiting = self._events.waiting()
        if waiting > LONG_QUEUE:
            self._short_since = now
            if now >= self._ready_at + MAX_RECOVERY_SECONDS:
                sentence = f"{left} keys are still stale: {waiting} refreshes wait, this machine is too slow for them"
                self._go_on(Stage.OVER, now, sentence)
        elif now >= self._short_since + RECOVERY_SECONDS + QUEUE_WAIT_SECONDS:
            self._board.checker.report(
                f"{left} keys that grew stale without a worker were not refreshed within "
                f"{RECOVERY_SECONDS + QUEUE_WAIT_SECONDS:g} s after the new one was ready and the queue short"
            )
            self._go_on(Stage.OVER, now, f"{left} keys are still stale")

    def _go_on(self, stage: Stage, now: float, sentence: str) -> None:
        self.stage = stage
        self._board.happened.append((now, sentence))
