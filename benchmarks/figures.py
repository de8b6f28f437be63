"""What a benchmark comes to: figures, each with its target beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

from benchmarks.plots import Plot
from benchmarks.statistics import middle
from benchmarks.tables import Table


class Must(StrEnum):
    """How a figure and its target compare."""

    AT_LEAST = "≥"
    MORE_THAN = ">"
    AT_MOST = "≤"
    BE = "="


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure must reach."""

    must: Must
    value: float

    def is_reached_by(self, measured: float) -> bool:
        """Compare; NaN reaches nothing."""
        if self.must is Must.AT_LEAST:
            return measured >= self.value
        if self.must is Must.MORE_THAN:
            return measured > self.value
        if self.must is Must.AT_MOST:
            return measured <= self.value
        return measured == self.value


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table of figures.

    Attributes:
        group: the group that measured it; the name that ``--only`` takes.
        what: in words.
        rounds: one value a round; the figure is their median. Empty: it could not be measured, ``note`` says why.
        unit: ``×``, ``ms``, ``bytes`` …; empty for a count.
        target: None: for information.
        note: what a reader of the table has to know of it.
        is_worst: the figure is that of a round which misses the target, if one does, else the largest: a promise that
            one round broke is broken.
    """

    group: str
    what: str
    rounds: tuple[float, ...]
    unit: str = "×"
    target: Target | None = None
    note: str = ""
    is_worst: bool = False

    @property
    def value(self) -> float:
        """The median of the rounds, or the worst of them; NaN where there are none."""
        if not self.is_worst:
            return middle(self.rounds)
        missed = [value for value in self.rounds if self.target and not self.target.is_reached_by(value)]
        return max(missed or self.rounds, default=math.nan)

    @property
    def reached(self) -> bool | None:
        """Whether the target is reached; None where there is no target, or no figure."""
        if self.target is None or math.isnan(self.value):
            return None
        return self.target.is_reached_by(self.value)


@dataclass(frozen=True, slots=True)
class Rate:
    """One line of a table of rates: what one contender did in one group.

    Attributes:
        seconds_a_read: one value a round; empty where it was not run, and ``note`` says why.
        of_baseline: reads a second as a multiple of the baseline's, one value a round.
        ours_of_it: the rate of this project's client as a multiple of this one's, one value a round.
    """

    group: str
    contender: str
    seconds_a_read: tuple[float, ...] = ()
    of_baseline: tuple[float, ...] = ()
    ours_of_it: tuple[float, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """What one group came to. ``seconds`` is what it took."""

    group: str
    title: str
    rates: tuple[Rate, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()
    seconds: float = field(default=0.0, compare=False)
