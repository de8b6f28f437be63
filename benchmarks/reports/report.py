"""Results on the console, and in the folder of a run."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.errors import BenchError
from benchmarks.reports.charts import draw
from benchmarks.reports.kept import KeptFigure, KeptRate, KeptResult, kept, save
from benchmarks.reports.provenance import at_end, heading
from benchmarks.reports.results import Result, Table, csv_cells, shown_cell, shown_column

if TYPE_CHECKING:
    from rich.console import Console

INTERRUPTED: Final = "interrupted: what follows is what was counted until then"
"""For the console, after Ctrl-C."""
RATE_COLUMNS: Final = ("reader", "µs/read", "× baseline", "ours is × it", "")
FIGURE_COLUMNS: Final = ("figure", "measured", "rounds", "target", "reached", "")
_REACHED: Final = {None: "", True: "yes", False: "NO"}


def present(folder: Path, provenance: Mapping[str, Any], results: Sequence[Result], console: Console) -> None:
    """Show the results below their provenance, keep them, and name the files.

    Raises:
        BenchError: the folder can't be written into, or charts can't be drawn.
    """
    run = kept(at_end(provenance), results)
    console.print(heading(run.provenance))
    for title, columns, rows in _tables(run.results):
        _print(title, columns, rows, console)
    try:
        for path in _write(folder, run, results):
            console.print(f"written: {path}")
    except OSError as error:
        raise BenchError(f"the results can't be written to {folder}: {error.strerror}") from error


def figure_row(figure: KeptFigure) -> list[str]:
    """Return a figure's cells, under `FIGURE_COLUMNS`."""
    spread = "" if figure.low is None else f"{shown_cell(figure.low)} – {shown_cell(figure.high)}"
    measured = f"{shown_cell(figure.value)} {figure.unit}".strip()
    return [figure.what, measured, spread, figure.target, _REACHED[figure.reached], figure.note]


def rate_row(rate: KeptRate) -> list[str]:
    """Return a rate's cells, under `RATE_COLUMNS`."""
    return [rate.competitor, *map(shown_cell, (rate.us_per_read, rate.of_baseline, rate.ours_of_it)), rate.note]


def _tables(results: Sequence[KeptResult]) -> Iterator[tuple[str, Sequence[str], list[list[str]]]]:
    for result in results:
        if result.rates:
            yield f"{result.title} ({result.group})", RATE_COLUMNS, [rate_row(rate) for rate in result.rates]
        for table in result.tables:
            rows = [[shown_cell(cell) for cell in row] for row in table.rows]
            yield table.title, [*map(shown_column, table.columns)], rows
    for result in results:
        if result.figures:
            yield f"{result.title} ({result.group})", FIGURE_COLUMNS, [figure_row(one) for one in result.figures]


def _print(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], console: Console) -> None:
    from rich.table import Table as RichTable

    shown = RichTable(*columns, title=title, title_justify="left")
    for row in rows:
        shown.add_row(*row)
    console.print(shown)


def _write(folder: Path, run: Any, results: Sequence[Result]) -> Iterator[Path]:
    """Yield what is written: ``<benchmark>.json``, ``<table>.csv`` of events over time, and the charts."""
    folder.mkdir(parents=True, exist_ok=True)
    yield save(run, folder)
    yield from (_write_csv(folder, table) for result in results for table in result.tables if not table.is_shown)
    for result in run.results:
        for chart in result.charts:
            yield from draw(chart, folder)


def _write_csv(folder: Path, table: Table) -> Path:
    path = folder / f"{table.name}.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table.columns)
        writer.writerows(map(csv_cells, table.rows))
    return path
