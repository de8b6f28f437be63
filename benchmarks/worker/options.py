"""Options of ``python -m benchmarks worker``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.options import DEFAULT_ROUNDS, GroupOptions


class Pool(StrEnum):
    """Celery's pools."""

    PREFORK = "prefork"
    SOLO = "solo"
    THREADS = "threads"
    GEVENT = "gevent"


@dataclass(frozen=True, slots=True)
class Scale:
    """Amount of measuring.

    Attributes:
        rounds: the number of rounds that count; one more, the first, is dropped.
        messages: the number of messages of one kind that are worked off in one go.
        samples: the number of triggers timed one by one in a round, and of tasks compared with them.
        longest_pause_seconds: the longest pause between two samples; pauses are drawn evenly.
        warm_up_loads: the number of loads before the measurement, which take both cores until the graph's Java has
            compiled them.
        pool_sizes: the concurrent loads of each worker in the compared pools, by the number of workers. Several workers
            are for loads that one can't carry, or so that one may end, so not every size is needed.
    """

    rounds: int
    messages: int
    samples: int
    longest_pause_seconds: float
    warm_up_loads: int
    pool_sizes: Mapping[int, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class WorkerOptions(GroupOptions):
    """Measure what a refresh costs a worker, against Celery tasks that do nothing, with the targets beside it.

    Refreshes a second of one process, or of one to four workers in each pool, and the time from a trigger to the
    commit. The pools take 20 minutes, and run with ``--only pools``. Ratios of one run, since times of two machines
    can't be compared. Exits with 0 whether targets are reached or not.
    """

    @property
    def scale(self) -> Scale:
        if self.quick:
            return Scale(self.rounds or 1, 30, 5, 0.005, 0, {1: (2,), 2: (2,)})
        sizes = {1: (1, 2, 4, 16, 64), 2: (1, 4, 16), 4: (1, 4, 16)}
        return Scale(self.rounds or DEFAULT_ROUNDS, 400, 100, 0.03, 5_000, sizes)
