"""Options of ``python -m benchmarks hits``."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.options import DEFAULT_ROUNDS, GroupOptions


@dataclass(frozen=True, slots=True)
class Scale:
    """Amount of measuring.

    Attributes:
        rounds: the number of rounds that count; one more, the first, is dropped.
        slices: the number of turns of each competitor in a round.
        slice_seconds: the approximate duration of a turn.
        latencies: the number of reads timed one by one, of each kind in each round.
    """

    rounds: int
    slices: int
    slice_seconds: float
    latencies: int


@dataclass(frozen=True, kw_only=True)
class HitsOptions(GroupOptions):
    """Measure what a hit costs, against redis-py itself and against other caches, with the targets beside it.

    Ratios of one run, since times of two machines can't be compared. Exits with 0 whether targets are reached or not.
    """

    @property
    def scale(self) -> Scale:
        if self.quick:
            return Scale(self.rounds or 1, 2, 0.01, 100)
        return Scale(self.rounds or DEFAULT_ROUNDS, 8, 0.05, 2_000)
