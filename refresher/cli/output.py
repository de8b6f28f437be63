"""Output of commands: foreign text on one line without control characters, JSON, tables, failures."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

ELLIPSIS: Final = "…"
_WIDTH_IN_A_FILE: Final = 200


def fail(message: str) -> NoReturn:
    """End the command with exit code 1, and the reason as one line on stderr."""
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(1)


def plain(text: str, most_characters: int | None = None) -> str:
    """Return ``text`` with unprintable characters escaped, cut to ``most_characters``."""
    shown = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
    if most_characters is not None and len(shown) > most_characters:
        return shown[: most_characters - 1] + ELLIPSIS
    return shown


def as_json(value: Any) -> str:
    """Return ``value`` as indented JSON for a script."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def compact(value: Any) -> str:
    """Return ``value`` as JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def time_of(at_us: int) -> str:
    """Format a time of Redis' clock in UTC, to the second."""
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")


def table_of(columns: Sequence[str], rows: Iterable[Sequence[str]], *, are_numbers: bool = False) -> Table:
    """Return a table without lines, whose first column is never broken, while the others are folded or numbers."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(columns[0], no_wrap=True)
    for column in columns[1:]:
        if are_numbers:
            table.add_column(column, justify="right")
        else:
            table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    return table


def details_grid(rows: Iterable[tuple[str, str | Text]], width: int | None = None) -> Table:
    """Return a grid of names, in a column of ``width``, with their texts."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", width=width)
    table.add_column(overflow="fold")
    for name, text in rows:
        table.add_row(name, text if isinstance(text, Text) else Text(text))
    return table


def wide_console() -> Console:
    """Return the console for tables, as wide as the terminal or ``COLUMNS``, or 200 columns without both."""
    from rich.console import Console

    console = Console(highlight=False)
    is_known = console.is_terminal or os.environ.get("COLUMNS", "").isdecimal()
    return console if is_known else Console(highlight=False, width=_WIDTH_IN_A_FILE)


def counted(count: int, noun: str, plural: str = "") -> str:
    """Format a number of things, such as "1 key", "2 keys"; ``plural`` is for nouns that don't just add an s."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
