"""A table of a report: shown to people, and kept as a CSV file of its own."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from rich.table import Table as RichTable

Cell: TypeAlias = str | int | float | None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings.

    Attributes:
        name: of its file, without ``.csv``.
        title: above it where it is shown.
        columns: headings; a unit stands in them (``p99_ms``).
        rows: a cell a column. None and NaN: there is no figure, which is not 0.
        is_shown: False: events over time and the like, too long for people; in its file alone, not in the JSON.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    is_shown: bool = True


def csv_cells(row: Iterable[Cell]) -> list[str]:
    """Return a row as a CSV file has it: six digits are more than a measurement has."""
    return ["" if is_nothing(cell) else f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in row]


def as_rich(table: Table) -> RichTable:
    """Return the table as rich prints it."""
    from rich.table import Table as RichTable

    shown = RichTable(title=table.title, title_justify="left")
    for number, column in enumerate(table.columns):
        is_text = all(isinstance(row[number], str) for row in table.rows)
        shown.add_column(shown_column(column), justify="left" if is_text else "right")
    for row in table.rows:
        shown.add_row(*(shown_cell(cell) for cell in row))
    return shown


def shown_column(column: str) -> str:
    """Return a heading for people: ``reads_per_s`` is reads/s, ``us_each`` is µs each."""
    words = column.replace("_per_", "/").split("_")
    return " ".join("µs" if word == "us" else word for word in words)


def shown_cell(cell: Cell) -> str:
    """Return a cell for people: three digits that mean something, thousands set apart."""
    if is_nothing(cell):
        return "–"
    if not isinstance(cell, float):
        return f"{cell:,}" if isinstance(cell, int) else str(cell)
    if cell == 0.0 or not math.isfinite(cell):
        return f"{cell:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(cell))))
    return f"{cell:,.{min(digits, 6)}f}"


def is_nothing(cell: Cell) -> bool:
    """Whether there is no figure."""
    return cell is None or (isinstance(cell, float) and math.isnan(cell))
