"""Medians over the seeds, and their spread, by candidate and point. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import fmean
from typing import NamedTuple, TypeAlias

from benchmarks.apparatus.statistics import median
from benchmarks.topology.plan import Candidate, Point
from benchmarks.topology.trial import Outcome

Metric: TypeAlias = str
"""Name of a figure of an `Outcome`."""


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
        return spread_of(self._values(metric))

    def _values(self, metric: Metric) -> list[float]:
        return [getattr(outcome, metric) for outcome in self.outcomes]

    def mean(self, metric: Metric) -> float:
        """Return a metric's mean over the seeds: of what is counted it wanders less than the median."""
        values = [value for value in self._values(metric) if not math.isnan(value)]
        return fmean(values) if values else math.nan

    def ratios(self, other: Measured, metric: Metric) -> list[float]:
        """Return how many times the other's metric this one's is, seed by seed; none where there is nothing to divide.

        A trial in which no read began, for all clients waited through it, has no percentile and no share.
        """
        theirs = {outcome.trial.seed: getattr(outcome, metric) for outcome in other.outcomes}
        pairs = [(getattr(outcome, metric), theirs.get(outcome.trial.seed, 0.0)) for outcome in self.outcomes]
        return [mine / other for mine, other in pairs if other > 0 and math.isfinite(mine)]


Measurements: TypeAlias = dict[tuple[Point, Candidate], Measured]


def by_candidate(outcomes: Iterable[Outcome]) -> Measurements:
    """Return outcomes by point and candidate."""
    found: dict[tuple[Point, Candidate], list[Outcome]] = defaultdict(list)
    for outcome in sorted(outcomes, key=attrgetter("trial.seed")):
        found[outcome.trial.point, outcome.trial.candidate].append(outcome)
    return {key: Measured(tuple(several)) for key, several in found.items()}


def spread_of(values: Sequence[float]) -> Spread:
    """Return the spread of values that are numbers; of none, NaN."""
    values = [value for value in values if not math.isnan(value)]
    return Spread(median(values), min(values, default=math.nan), max(values, default=math.nan))


def compact(value: float) -> str:
    """Return three digits that mean something."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
