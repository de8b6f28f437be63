"""Results of a benchmark as they are shown and kept: figures with their targets, rates, tables and charts."""

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
        """Compare; NaN reaches nothing."""
        return bool(_COMPARE[self.must](measured, self.value))

    def shown(self, unit: str) -> str:
        """Return the target as a figure has it: ``≥ 1.1 ×``."""
        return f"{self.must} {self.value:.4g} {unit}".strip()

    @classmethod
    def parse(cls, shown: str) -> Target:
        """Return the target of a figure that was kept, as far as it is shown there."""
        must, value, *_ = shown.split()
        return cls(Must(must), float(value))


class Figure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the table of figures, made by `figure`.

    Attributes:
        value: None: not measured, and ``note`` says why.
        low, high: of the rounds, where there are two or more.
        rounds: how many there were.
        reached: None without a target, or without a value.
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
    """Return the median of the rounds, with their spread, beside its target.

    Args:
        what: is measured.
        rounds: one value per round; empty: not measured, and ``note`` says why.
        unit: ``×``, ``ms``, ``bytes`` …; empty for a count.
        target: None: for information.
        note: the last column.
        is_worst: the figure is that of a round which misses the target, if one does, else the largest: a promise that
            one round broke is broken.
    """
    value = median(rounds)
    if is_worst:
        missed = [one for one in rounds if target and not target.is_reached_by(one)]
        value = max(missed or rounds, default=math.nan)
    reached = None if target is None or math.isnan(value) else target.is_reached_by(value)
    shown = "" if target is None else target.shown(unit)
    return Figure(what, _number(value), *_spread(rounds), len(rounds), unit, shown, reached, note)


class Rate(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a table of rates, made by `rate`; medians, and the spread of the time of a read (µs)."""

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
    """Return what one competitor did, from one value per round; none where it did not run, and ``note`` says why.

    ``of_baseline`` is its rate as a multiple of the baseline's, ``ours_of_it`` this project's as a multiple of its own.
    """
    us_per_read = [seconds * 1e6 for seconds in seconds_per_read]
    ratios = _number(median(of_baseline)), _number(median(ours_of_it))
    return Rate(competitor, _number(median(us_per_read)), *_spread(us_per_read), *ratios, note)


class Table(msgspec.Struct, frozen=True):
    """Rows under headings, in which units stand (``p99_ms``). None and NaN: there is no figure, which is not 0."""

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
