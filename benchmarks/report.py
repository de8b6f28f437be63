"""How results are shown and kept: tables for people, JSON and CSV for programs."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.about import heading
from benchmarks.errors import BenchError
from benchmarks.figures import Figure, Rate, Result
from benchmarks.plots import draw
from benchmarks.statistics import middle
from benchmarks.tables import Table, as_rich, csv_cells, is_nothing

if TYPE_CHECKING:
    from rich.console import Console

FORMAT_VERSION: Final = 2
INTERRUPTED: Final = "interrupted: what follows is what was counted until then"
"""For the console, when somebody has pressed Ctrl-C."""
RATE_COLUMNS: Final = ("group", "contender", "reads_per_second", "us_per_read", "of_baseline", "ours_of_it", "note")
FIGURE_COLUMNS: Final = ("group", "figure", "value", "unit", "lowest", "highest", "target", "reached", "note")


def show_rates(results: Iterable[Result], console: Console) -> None:
    """Print a table of rates for each group that has one."""
    from rich.table import Table

    for result in results:
        if not result.rates:
            continue
        table = Table(title=f"{result.title} ({result.group})", title_justify="left")
        table.add_column("reader")
        for column in ("reads/s", "µs a read", "× baseline", "ours is × it"):
            table.add_column(column, justify="right")
        table.add_column("")
        for rate in result.rates:
            took = middle(rate.seconds_a_read)
            table.add_row(
                rate.contender, _number(1 / took, 0), _number(took * 1e6, 2), _number(middle(rate.of_baseline)),
                _number(middle(rate.ours_of_it)), rate.note,
            )  # fmt: skip
        console.print(table)


def show_figures(results: Iterable[Result], console: Console) -> None:
    """Print the one table of figures and targets."""
    from rich.table import Table

    table = Table(title="figures and targets", title_justify="left")
    table.add_column("figure")
    for column in ("measured", "rounds", "target"):
        table.add_column(column, justify="right")
    table.add_column("reached")
    table.add_column("")
    for result in results:
        table.add_section()
        table.add_row(f"{result.title} ({result.group})", style="bold")
        for figure in result.figures:
            table.add_row(*_shown(figure))
    console.print(table)


def _shown(figure: Figure) -> tuple[str, ...]:
    measured = f"{_number(figure.value)} {figure.unit}".strip()
    spread = "" if len(figure.rounds) < 2 else f"{_number(min(figure.rounds))} – {_number(max(figure.rounds))}"
    reached = {None: "", True: "yes", False: "NO"}[figure.reached]
    return f"  {figure.what}", measured, spread, _target(figure), reached, figure.note


def present(folder: Path, about: Mapping[str, Any], results: Sequence[Result], console: Console) -> None:
    """Show the results below what the run was, keep them, and name the files.

    Raises:
        BenchError: the folder can't be written into, or pictures can't be drawn.
    """
    console.print(heading(about))
    show(results, console)
    try:
        paths = write(folder, about, results)
    except OSError as error:
        raise BenchError(f"the results can't be written to {folder}: {error.strerror}") from error
    for path in paths:
        console.print(f"written: {path}")


def show(results: Sequence[Result], console: Console) -> None:
    """Print all that people are to see of the results."""
    show_rates(results, console)
    for result in results:
        for table in result.tables:
            if table.is_shown:
                console.print(as_rich(table))
    if _figures(results):
        show_figures(results, console)


def write(folder: Path, about: Mapping[str, Any], results: Sequence[Result]) -> list[Path]:
    """Write a benchmark's results, and return the paths.

    ``<benchmark>.json`` has everything but tables that are not for people, ``rates.csv`` and ``figures.csv`` what there
    is of them, ``<table>.csv`` each table, and ``<plot>.png`` and ``<plot>.svg`` each picture.

    Raises:
        OSError: the folder can't be made or written into.
        BenchError: pictures can't be drawn.
    """
    folder.mkdir(parents=True, exist_ok=True)
    content = {"format": FORMAT_VERSION, **about, "results": [_as_json(result) for result in results]}
    paths = [folder / f"{about['benchmark']}.json"]
    paths[0].write_text(json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8")
    rates = [_rate_row(rate) for result in results for rate in result.rates]
    if rates:
        paths.append(_write_csv(folder / "rates.csv", RATE_COLUMNS, rates))
    if figures := _figures(results):
        paths.append(_write_csv(folder / "figures.csv", FIGURE_COLUMNS, map(_figure_row, figures)))
    for result in results:
        paths.extend(
            _write_csv(folder / f"{table.name}.csv", table.columns, map(csv_cells, table.rows))
            for table in result.tables
        )
        for plot in result.plots:
            paths.extend(draw(plot, folder))
    return paths


def _figures(results: Iterable[Result]) -> list[Figure]:
    return [figure for result in results for figure in result.figures]


def _as_json(result: Result) -> dict[str, Any]:
    content = asdict(result)
    for figure, found in zip(content["figures"], result.figures, strict=True):
        figure["target"] = _target(found)
        figure["value"] = None if math.isnan(found.value) else found.value
        figure["reached"] = found.reached
    content["tables"] = [_table_as_json(table) for table in result.tables if table.is_shown]
    return content


def _table_as_json(table: Table) -> dict[str, Any]:
    rows = [[None if is_nothing(cell) else cell for cell in row] for row in table.rows]
    return {"name": table.name, "title": table.title, "columns": list(table.columns), "rows": rows}


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)
    return path


def _rate_row(rate: Rate) -> tuple[object, ...]:
    took = middle(rate.seconds_a_read)
    return (
        rate.group, rate.contender, _cell(1 / took), _cell(took * 1e6), _cell(middle(rate.of_baseline)),
        _cell(middle(rate.ours_of_it)), rate.note,
    )  # fmt: skip


def _figure_row(figure: Figure) -> tuple[object, ...]:
    lowest, highest = (min(figure.rounds), max(figure.rounds)) if figure.rounds else (math.nan, math.nan)
    return (
        figure.group, figure.what, _cell(figure.value), figure.unit, _cell(lowest), _cell(highest), _target(figure),
        {None: "", True: "yes", False: "no"}[figure.reached], figure.note,
    )  # fmt: skip


def _target(figure: Figure) -> str:
    if figure.target is None:
        return ""
    return f"{figure.target.must} {figure.target.value:.4g} {figure.unit}".strip()


def _cell(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6g}"


def _number(value: float, digits: int = 2) -> str:
    return "–" if math.isnan(value) else f"{value:,.{digits}f}"
