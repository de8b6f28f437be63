"""What is shown of a moment of the run: one value, so that the live table and the plain lines can't differ."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from refresher.demo.chaos import Stage

if TYPE_CHECKING:
    from refresher.demo.board import Board
    from refresher.demo.counters import Histogram, Tally
    from refresher.demo.worker_events import WorkerEvents

STATUS: Final = {
    Stage.AHEAD: "worker alive",
    Stage.WITHOUT_WORKER: "worker killed (SIGKILL), reads go on",
    Stage.STARTING: "no worker yet, reads go on; another one is starting",
    Stage.RECOVERING: "new worker alive, catching up",
    Stage.OVER: "new worker alive",
}


@dataclass(frozen=True, slots=True)
class View:
    """One moment. Durations in seconds; rates and latencies are those of the last two."""

    elapsed_seconds: float
    stage: Stage
    tally: Tally
    reads_per_second: float
    latency: Histogram
    queued: int
    running: int
    committed: int
    rejected: int
    failed: int
    loads_per_second: float
    delta_seconds: float
    broken: int
    happened: list[tuple[float, str]]

    @property
    def is_without_worker(self) -> bool:
        """Whether there is no worker right now."""
        return self.stage in {Stage.WITHOUT_WORKER, Stage.STARTING}


def view_of(board: Board, events: WorkerEvents, stage: Stage, began_at: float) -> View:
    """Return the moment that is now."""
    now = time.monotonic()
    with events.lock:
        counts = events.counts
        board.note_loads(counts.loads, now)
        running, committed, rejected = len(counts.running), counts.committed, sum(counts.rejected_for.values())
        failed, delta_seconds = counts.given_up, counts.delta_seconds
    return View(
        elapsed_seconds=now - began_at,
        stage=stage,
        tally=board.tally,
        reads_per_second=board.reads_per_second(now),
        latency=board.latency(now),
        queued=events.waiting(),
        running=running,
        committed=committed,
        rejected=rejected,
        failed=failed,
        loads_per_second=board.loads_per_second(now),
        delta_seconds=delta_seconds,
        broken=len(board.checker.broken),
        happened=[(at - began_at, sentence) for at, sentence in board.happened],
    )
