"""Results of a benchmark as shown and stored: figures with targets, rates, tables and charts."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from benchmarks.apparatus.statistics import median
from benchmarks.reports.charts import Plot

TableCell: TypeAlias = str | int | float | None


class Must(StrEnum):
    """Comparison of a figure with its target."""

    AT_LEAST = "≥"
    MORE_THAN = ">"
    AT_MOST = "≤"
    BE = "="


_COMPARE: Final = {
    Must.AT_LEAST: operator.ge, Must.MORE_THAN: operator.gt, Must.AT_MOST: operator.le, Must.BE: operator.eq,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Target:
    """Target of a figure."""

    must: Must
    value: float

    def is_reached_by(self, measured: float) -> bool:
        """Return whether a measured value reaches the target, which NaN never does."""
        return bool(_COMPARE[self.must](measured, self.value))

    def shown(self, unit: str) -> str:
        """Format the target for a figure, such as ``≥ 1.1 ×``."""
        return f"{self.must} {self.value:.4g} {unit}".strip()

    @classmethod
    def parse(cls, shown: str) -> Target:
        """Return the target of a stored figure, as far as its text shows it."""
        must, value, *_ = shown.split()
        return cls(Must(must), float(value))


class Figure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One row of the table of figures, made by `figure`.

    Attributes:
        value: the measured value; None if it was not measured, for the reason in ``note``.
        low, high: the extremes of the rounds, if there are two or more.
        rounds: the number of rounds.
        reached: True if the target was reached; None without a target or a value.
    """

    what: str
    value: float | None
    low: float | None = None
    high: float | None = None
    rounds: int = 1
    unit: str = ""
    target: str = ""
    reached: bool | None = None
    note: str = ""


def figure(
    what: str, rounds: Sequence[float], unit: str = "×", target: Target | None = None, note: str = "",
    *, is_worst: bool = False,
) -> Figure:  # fmt: skip
    """Return the figure of the rounds' median and spread, with its target.

    Args:
        what: the measured quantity.
        rounds: one value per round; empty if it was not measured, for the reason in ``note``.
        unit: ``×``, ``ms``, ``bytes`` …; empty for a count.
        target: the target; None if the figure is only for information.
        note: the text of the last column.
        is_worst: True to take the value of a round that misses the target, if any, or else the largest, because a
            promise that one round broke is broken.
    """
    value = median(rounds)
    if is_worst:
        missed = [one for one in rounds if target and not target.is_reached_by(one)]
        value = max(missed or rounds, default=math.nan)
    reached = None if target is None or math.isnan(value) else target.is_reached_by(value)
    shown = "" if target is None else target.shown(unit)
    return Figure(what, _number(value), *_spread(rounds), len(rounds), unit, shown, reached, note)


class Rate(msgspec.Struct, frozen=True, omit_defaults=True):
    """One row of a table of rates, made by `rate`: medians, and the spread of the time per read (µs)."""

    competitor: str
    us_per_read: float | None = None
    low: float | None = None
    high: float | None = None
    of_baseline: float | None = None
    ours_of_it: float | None = None
    note: str = ""


def rate(
    competitor: str, seconds_per_read: Sequence[float] = (), of_baseline: Sequence[float] = (),
    ours_of_it: Sequence[float] = (), note: str = "",
) -> Rate:  # fmt: skip
    """Return a competitor's row from one value per round; empty if it did not run, for the reason in ``note``.

    ``of_baseline`` is its rate as a multiple of the baseline's, ``ours_of_it`` this project's as a multiple of its own.
    """
    us_per_read = [seconds * 1e6 for seconds in seconds_per_read]
    ratios = _number(median(of_baseline)), _number(median(ours_of_it))
    return Rate(competitor, _number(median(us_per_read)), *_spread(us_per_read), *ratios, note)


class Table(msgspec.Struct, frozen=True):
    """Rows under headings with units (``p99_ms``). None and NaN mean that there is no figure, which is not 0."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[TableCell]]


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of one group."""

    group: str
    title: str
    figures: Sequence[Figure] = []
    rates: Sequence[Rate] = []
    tables: Sequence[Table] = []
    charts: Sequence[Plot] = []


def _spread(rounds: Sequence[float]) -> tuple[float | None, float | None]:
    return (_number(min(rounds)), _number(max(rounds))) if len(rounds) > 1 else (None, None)


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
