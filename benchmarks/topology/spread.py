"""Medians over the seeds, and their spread, by candidate and point. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter, methodcaller
from statistics import fmean
from typing import Final, NamedTuple, TypeAlias

from benchmarks.apparatus.statistics import median
from benchmarks.topology.plan import Candidate, Point
from benchmarks.topology.trial import Outcome

Metric: TypeAlias = Callable[[Outcome], float]
_THREE_DIGITS = 100


class Spread(NamedTuple):
    """A median with the smallest and the largest value."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        if math.isnan(self.median):
            return "–"
        if self.low == self.high:
            return compact(self.median)
        return f"{compact(self.median)} ({compact(self.low)}–{compact(self.high)})"


@dataclass(frozen=True, slots=True)
class Measured:
    """The outcomes of one candidate at one point, by seed."""

    outcomes: tuple[Outcome, ...]

    def spread(self, metric: Metric) -> Spread:
        return spread_of([metric(outcome) for outcome in self.outcomes])

    def mean(self, metric: Metric) -> float:
        """Return a metric's mean over the seeds: of what is counted it wanders less than the median."""
        values = [value for outcome in self.outcomes if not math.isnan(value := metric(outcome))]
        return fmean(values) if values else math.nan

    def ratios(self, other: Measured, metric: Metric) -> list[float]:
        """Return how many times the other's metric this one's is, seed by seed; none where there is nothing to divide.

        A trial in which no read began, for all clients waited through it, has no percentile and no share.
        """
        theirs = {outcome.trial.seed: metric(outcome) for outcome in other.outcomes}
        pairs = [(metric(outcome), theirs.get(outcome.trial.seed, 0.0)) for outcome in self.outcomes]
        return [mine / other for mine, other in pairs if other > 0 and math.isfinite(mine)]


Measurements: TypeAlias = dict[tuple[Point, Candidate], Measured]


def by_candidate(outcomes: Iterable[Outcome]) -> Measurements:
    """Return outcomes by point and candidate."""
    found: dict[tuple[Point, Candidate], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        found[outcome.trial.point, outcome.trial.candidate].append(outcome)
    return {
        key: Measured(tuple(sorted(several, key=lambda outcome: outcome.trial.seed)))
        for key, several in found.items()
    }  # fmt: skip


def spread_of(values: Sequence[float]) -> Spread:
    """Return the spread of values that are numbers; of none, NaN."""
    values = [value for value in values if not math.isnan(value)]
    return Spread(median(values), min(values, default=float("nan")), max(values, default=float("nan")))


def confidence(seeds: int) -> float:
    """Return the probability that the true median lies between the smallest and the largest of so many values.

    Each value is above it with probability ½, so it is missed only when all are above it, or all below.
    """
    return 1 - 2 * 0.5**seeds


def compact(value: float) -> str:
    """Return three digits that mean something."""
    return f"{value:,.0f}" if abs(value) >= _THREE_DIGITS else f"{value:.3g}"


reads_per_second: Final[Metric] = attrgetter("reads_per_second")
recomputes_per_second: Final[Metric] = attrgetter("recomputes_per_second")
origin_busy: Final[Metric] = attrgetter("origin_busy")
p50_ms: Final[Metric] = methodcaller("percentile_ms", 50)
p95_ms: Final[Metric] = methodcaller("percentile_ms", 95)
p99_ms: Final[Metric] = methodcaller("percentile_ms", 99)


def waited_percent(outcome: Outcome) -> float:
    """Return how many reads waited, in a hundred."""
    return outcome.waited * 100


def stale_percent(outcome: Outcome) -> float:
    """Return how many reads got a value past its soft expiry, in a hundred."""
    return outcome.stale * 100
