"""Results of a benchmark: figures with their targets, rates, tables and charts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from benchmarks.apparatus.statistics import median
from benchmarks.reports.charts import Plot

TableCell: TypeAlias = str | int | float | None


class Must(StrEnum):
    """Comparison of a figure with its target."""

    AT_LEAST = "≥"
    MORE_THAN = ">"
    AT_MOST = "≤"
    BE = "="


@dataclass(frozen=True, slots=True)
class Target:
    """Target of a figure."""

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
        rounds: one value per round; the figure is their median. Empty: not measured, and ``note`` says why.
        unit: ``×``, ``ms``, ``bytes`` …; empty for a count.
        target: None: for information.
        is_worst: the figure is that of a round which misses the target, if one does, else the largest: a promise that
            one round broke is broken.
    """

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
            return median(self.rounds)
        missed = [value for value in self.rounds if self.target and not self.target.is_reached_by(value)]
        return max(missed or self.rounds, default=math.nan)

    @property
    def reached(self) -> bool | None:
        """True if the target is reached; None without a target, or without a figure."""
        if self.target is None or math.isnan(self.value):
            return None
        return self.target.is_reached_by(self.value)


@dataclass(frozen=True, slots=True)
class Rate:
    """One line of a table of rates: what one competitor did, one value per round.

    Attributes:
        seconds_per_read: empty where it did not run, and ``note`` says why.
        of_baseline: its rate as a multiple of the baseline's.
        ours_of_it: this project's rate as a multiple of its own.
    """

    competitor: str
    seconds_per_read: tuple[float, ...] = ()
    of_baseline: tuple[float, ...] = ()
    ours_of_it: tuple[float, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings.

    Attributes:
        name: of its file, where it has one, without ``.csv``.
        columns: headings; a unit stands in them (``p99_ms``).
        rows: one cell per column. None and NaN: there is no figure, which is not 0.
        is_shown: False: events over time and the like, too long for people; they go to a CSV file instead.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    is_shown: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one group."""

    group: str
    title: str
    rates: tuple[Rate, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()


def csv_cells(row: Iterable[TableCell]) -> list[str]:
    """Return a row as a CSV file has it: six digits are more than a measurement has."""
    return ["" if is_nothing(cell) else f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in row]


def shown_column(column: str) -> str:
    """Return a heading for people: ``reads_per_s`` is reads/s, ``us_each`` is µs each."""
    words = column.replace("_per_", "/").split("_")
    return " ".join("µs" if word == "us" else word for word in words)


def shown_cell(cell: TableCell) -> str:
    """Return a cell for people: three significant digits, thousands set apart."""
    if is_nothing(cell):
        return "–"
    if not isinstance(cell, float):
        return f"{cell:,}" if isinstance(cell, int) else str(cell)
    if cell == 0.0 or not math.isfinite(cell):
        return f"{cell:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(cell))))
    return f"{cell:,.{min(digits, 6)}f}"


def is_nothing(cell: TableCell) -> bool:
    """Return whether there is no figure."""
    return cell is None or (isinstance(cell, float) and math.isnan(cell))
