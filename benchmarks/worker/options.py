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
        rounds: rounds that count; one more, the first, is dropped.
        messages: of one kind, that are worked off in one go.
        samples: triggers timed one by one in a round, and tasks beside them.
        longest_pause_seconds: between two samples; drawn evenly.
        warm_up_loads: that the graph answers before it is measured: until its Java has compiled them, that takes both
            cores.
        pool_sizes: loads at once of each worker, of the pools that are compared, by the number of workers. Several are
            for what one can't carry, or so that one may end: each size tells nothing new.
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
