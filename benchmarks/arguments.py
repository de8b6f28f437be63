"""Command-line options that several benchmarks share, and their console."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from refresher.cli.arguments import without_password

if TYPE_CHECKING:
    from rich.console import Console

RedisUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        callback=without_password,
        help="Your own Redis as the cache; REDIS_PASSWORD is read from the environment. The benchmark's keys are "
        "removed in the end.",
    ),
]
Quick: TypeAlias = Annotated[
    bool, typer.Option("--quick", help="Little of everything, in a minute at most: shows that it works, not how fast.")
]
Out: TypeAlias = Annotated[Path, typer.Option(metavar="FOLDER", help="Where JSON, CSV and pictures go.")]


def console_of(width_in_a_file: int) -> Console:
    """Return where to print: as wide as the terminal is, or so many columns where there is none."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=width_in_a_file)
