"""A run's groups measured one after the other; their results on the console, and in the folder of the run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from api_client import CacheError
from benchmarks.errors import BenchError
from benchmarks.reports.charts import draw
from benchmarks.reports.kept import kept, save
from benchmarks.reports.provenance import at_end, heading
from benchmarks.reports.results import Figure, Rate, Result, TableCell, Target, figure
from refresher.embedded import EmbeddedServerError

if TYPE_CHECKING:
    from rich.console import Console

_RATE_COLUMNS: Final = ("reader", "µs/read", "× baseline", "ours is × it", "")
_FIGURE_COLUMNS: Final = ("figure", "measured", "rounds", "target", "reached", "")
_REACHED: Final = {None: "", True: "yes", False: "NO"}
_ONLY_THE_MEDIAN: Final = "median only"
_NOT_MEASURED: Final = "not measured"


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with the result of what a group had counted until then."""

    def __init__(self, result: Result) -> None:
        super().__init__()
        self.result: Result = result


def measured(groups: Iterable[tuple[str, Callable[[], Result]]], console: Console) -> list[Result]:
    """Measure the groups, given by name, until all are done or Ctrl-C; one that fails is a result that says why.

    Raises:
        KeyboardInterrupt: before anything was measured.
    """
    results: list[Result] = []
    try:
        for name, measure in groups:
            console.print(f"{name} …", style="dim")
            try:
                results.append(measure())
            except (BenchError, CacheError, EmbeddedServerError) as error:
                # What the other groups have measured, or will, is kept.
                results.append(Result(name, name, [figure(_NOT_MEASURED, (), note=str(error))]))
    except KeyboardInterrupt as interrupt:
        if isinstance(interrupt, Interrupted):
            results.append(interrupt.result)
        if not results:
            raise
        console.print("interrupted: what follows is what was counted until then")
    return results


def present(folder: Path, provenance: Mapping[str, Any], results: Sequence[Result], console: Console) -> None:
    """Show the results below their provenance, keep them with their charts, and name the files.

    Raises:
        BenchError: the folder can't be written into; or, when all is shown and kept, a group was not measured.
    """
    from rich.table import Table as RichTable

    run = kept(at_end(provenance), results)
    console.print(heading(run.provenance))
    for result in run.results:
        for table in tables_of(result):
            shown = RichTable(
                *table.columns, title=table.title or f"{result.title} ({result.group})", title_justify="left"
            )
            for row in table.rows:
                shown.add_row(*row)
            console.print(shown)
    try:
        charts = [path for result in run.results for chart in result.charts for path in draw(chart, folder)]
        for path in (save(run, folder), *charts):
            console.print(f"written: {path}")
    except OSError as error:
        raise BenchError(f"the results can't be written to {folder}: {error.strerror}") from error
    if failed := [result.group for result in results for one in result.figures if one.what == _NOT_MEASURED]:
        raise BenchError(f"not measured: {', '.join(failed)}; the table says why")


class ShownTable(NamedTuple):
    """A table for people; its own title, or none."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def tables_of(result: Result) -> Iterator[ShownTable]:
    """Yield the tables of a result: its figures, its rates, and all others."""
    if result.figures:
        yield ShownTable("", _FIGURE_COLUMNS, [_figure_row(one) for one in result.figures])
    if result.rates:
        yield ShownTable("", _RATE_COLUMNS, [_rate_row(one) for one in result.rates])
    for table in result.tables:
        rows = [[shown_cell(cell) for cell in row] for row in table.rows]
        yield ShownTable(table.title, [*map(_shown_column, table.columns)], rows)


def _figure_row(one: Figure) -> list[str]:
    spread = "" if one.low is None else f"{shown_cell(one.low)} – {shown_cell(one.high)}"
    return [
        one.what,
        f"{shown_cell(one.value)} {one.unit}".strip(),
        spread,
        one.target,
        _reached(one),
        one.note,
    ]


def _reached(one: Figure) -> str:
    """Return "yes" only where every round reached the target: a median beside a wide spread is no promise."""
    if one.reached and one.low is not None and one.high is not None:
        target = Target.parse(one.target)
        if not (target.is_reached_by(one.low) and target.is_reached_by(one.high)):
            return _ONLY_THE_MEDIAN
    return _REACHED[one.reached]


def _rate_row(rate: Rate) -> list[str]:
    return [rate.competitor, *map(shown_cell, (rate.us_per_read, rate.of_baseline, rate.ours_of_it)), rate.note]


def _shown_column(column: str) -> str:
    """Return a heading for people: ``reads_per_s`` is reads/s, ``us_each`` is µs each."""
    words = column.replace("_per_", "/").split("_")
    return " ".join("µs" if word == "us" else word for word in words)


def shown_cell(cell: TableCell) -> str:
    """Return a cell for people: three significant digits, thousands set apart."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return "–"
    if not isinstance(cell, float):
        return f"{cell:,}" if isinstance(cell, int) else str(cell)
    if cell == 0.0 or not math.isfinite(cell):
        return f"{cell:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(cell))))
    return f"{cell:,.{min(digits, 6)}f}"
