"""Rounds, medians, ratios within a round, percentiles. Pure."""

from __future__ import annotations

import math
import random
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

WARM_UP_ROUND: Final = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn: a round, and the name of the measured competitor."""

    round: int
    name: str


def turns(names: Sequence[str], *, rounds: int, slices: int, rng: random.Random) -> Iterator[Turn]:
    """Yield turns: in each round every competitor has ``slices`` short ones, in an order drawn anew each time.

    A machine's speed changes over seconds, so short turns in random order let competitors run under the same
    conditions. Round 0 is the warm-up and does not count.
    """
    for number in range(rounds + 1):
        for _ in range(slices):
            order = list(names)
            rng.shuffle(order)
            for name in order:
                yield Turn(number, name)


@dataclass(slots=True)
class Tally:
    """Reads and seconds of each competitor, by round."""

    reads: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    seconds: dict[tuple[str, int], float] = field(default_factory=lambda: defaultdict(float))

    def add(self, turn: Turn, reads: int, seconds: float) -> None:
        self.reads[turn.name, turn.round] += reads
        self.seconds[turn.name, turn.round] += seconds

    def seconds_per_read(self, name: str) -> list[float]:
        """Return the seconds per read of each counted round, in order."""
        rounds = sorted(number for one, number in self.reads if one == name and number != WARM_UP_ROUND)
        return [self.seconds[name, number] / self.reads[name, number] for number in rounds]

    def speed_ratios(self, name: str, other: str) -> list[float]:
        """Return the read rate of ``name`` as a multiple of that of ``other``, for each counted round."""
        mine, others = self.seconds_per_read(name), self.seconds_per_read(other)
        return [theirs / own for own, theirs in zip(mine, others, strict=True)]


def median(values: Sequence[float]) -> float:
    """Return the median, or NaN without values."""
    return statistics.median(values) if values else math.nan


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that ``percent`` of all values do not exceed (nearest rank), or NaN without values."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
