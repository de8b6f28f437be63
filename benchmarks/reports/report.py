"""Report of a run: its groups are measured in turn, and their results shown on the console and stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from rich.console import Console
from rich.table import Table as RichTable

from api_client import CacheError
from benchmarks.errors import BenchError
from benchmarks.options import Options
from benchmarks.reports.charts import draw
from benchmarks.reports.kept import Run, kept, save
from benchmarks.reports.provenance import average_load, heading, provenance
from benchmarks.reports.results import Figure, Rate, Result, TableCell, Target, figure
from refresher.embedded import EmbeddedServerError

Groups: TypeAlias = Generator[tuple[str, Callable[[], Result]], None, None]
"""Groups of a run, each with its name and its measurement."""
_RATE_COLUMNS: Final = ("reader", "µs/read", "× baseline", "ours is × it", "")
_FIGURE_COLUMNS: Final = ("figure", "measured", "rounds", "target", "reached", "")
_REACHED: Final = {None: "", True: "yes", False: "NO"}
_ONLY_THE_MEDIAN: Final = "median only"
_NOT_MEASURED: Final = "not measured"


def report(
    benchmark: str,
    options: Options,
    console: Console,
    groups: Groups,
    *,
    versions: Mapping[str, str],
    rounds: int = 1,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Measure the groups one after another, show their results, and store them with their charts.

    Ctrl-C ends the measurements; the groups measured by then are shown and stored. A failed group has the reason as its
    result.

    Args:
        benchmark: the name of the benchmark and of its file.
        options: the options of the run.
        console: shows the results below their provenance.
        groups: the groups by name; servers open between two of them are closed at the end.
        versions: the versions of the servers, by name; read at the end.
        rounds: the number of rounds that count.
        more: further provenance, without passwords and paths.

    Raises:
        KeyboardInterrupt: a Ctrl-C came before anything was measured.
        BenchError: the folder can't be written to; or, once everything is shown and stored, a group was not measured.
    """
    about = provenance(benchmark, options, rounds=rounds, more=more)
    with closing(groups):
        results = _measured(groups, console)
    about["versions"] |= versions
    about["load"]["after"] = average_load()
    _present(options.out, kept(about, results), console)


def _measured(groups: Groups, console: Console) -> list[Result]:
    results: list[Result] = []
    try:
        for name, measure in groups:
            console.print(f"{name} …", style="dim")
            try:
                results.append(measure())
            except (BenchError, CacheError, EmbeddedServerError) as error:
                results.append(Result(name, name, [figure(_NOT_MEASURED, (), note=str(error))]))
    except KeyboardInterrupt:
        if not results:
            raise
        console.print("interrupted: what follows is what was measured until then")
    return results


def _present(folder: Path, run: Run, console: Console) -> None:
    console.print(heading(run.provenance))
    for result in run.results:
        for table in tables_of(result):
            title = table.title or f"{result.title} ({result.group})"
            shown = RichTable(*table.columns, title=title, title_justify="left")
            for row in table.rows:
                shown.add_row(*row)
            console.print(shown)
    try:
        charts = [path for result in run.results for chart in result.charts for path in draw(chart, folder)]
        for path in (save(run, folder), *charts):
            console.print(f"written: {path}")
    except OSError as error:
        raise BenchError(f"the results can't be written to {folder}: {error.strerror}") from error
    if failed := [result.group for result in run.results for one in result.figures if one.what == _NOT_MEASURED]:
        raise BenchError(f"not measured: {', '.join(failed)}; the table says why")


class ShownTable(NamedTuple):
    """A table for people, perhaps with a title of its own."""

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
    return [one.what, f"{shown_cell(one.value)} {one.unit}".strip(), spread, one.target, _reached(one), one.note]


def _reached(one: Figure) -> str:
    """Return "yes" only if every round reached the target, since a median with a wide spread is no promise."""
    if one.reached and one.low is not None and one.high is not None:
        target = Target.parse(one.target)
        if not (target.is_reached_by(one.low) and target.is_reached_by(one.high)):
            return _ONLY_THE_MEDIAN
    return _REACHED[one.reached]


def _rate_row(rate: Rate) -> list[str]:
    return [rate.competitor, *map(shown_cell, (rate.us_per_read, rate.of_baseline, rate.ours_of_it)), rate.note]


def _shown_column(column: str) -> str:
    """Format a heading for people: ``reads_per_s`` as reads/s, ``us_each`` as µs each."""
    words = column.replace("_per_", "/").split("_")
    return " ".join("µs" if word == "us" else word for word in words)


def shown_cell(cell: TableCell) -> str:
    """Format a cell for people, with three significant digits and separated thousands."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return "–"
    if not isinstance(cell, float):
        return f"{cell:,}" if isinstance(cell, int) else str(cell)
    if cell == 0.0 or not math.isfinite(cell):
        return f"{cell:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(cell))))
    return f"{cell:,.{min(digits, 6)}f}"
