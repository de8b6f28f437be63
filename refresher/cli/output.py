"""Output of commands: text of others on one line, without control characters; JSON; tables."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

ELLIPSIS: Final = "…"
_WIDTH_IN_A_FILE: Final = 200


def plain(text: str, most_characters: int | None = None) -> str:
    """Return ``text`` with unprintable characters escaped, cut to ``most_characters``."""
    shown = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
    if most_characters is not None and len(shown) > most_characters:
        return shown[: most_characters - 1] + ELLIPSIS
    return shown


def as_json(value: Any) -> str:
    """Return ``value`` as JSON for a script, indented."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def compact(value: Any) -> str:
    """Return ``value`` as JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def time_of(at_us: int) -> str:
    """Return a time of Redis' clock in UTC, to the second."""
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")


def wide_console() -> Console:
    """Return the console for tables: as wide as the terminal, or 200 columns without one."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDTH_IN_A_FILE)


def print_table(table: Table) -> None:
    """Print a table."""
    wide_console().print(table)


def counted(count: int, noun: str) -> str:
    """Return a number of things: "1 key", "2 keys"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
