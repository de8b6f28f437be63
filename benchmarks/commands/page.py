"""``python -m benchmarks page``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def page(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", exists=True, file_okay=False, help="Where runs have kept their JSON.")
    ] = Path("bench-results"),
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page; its pictures go to a folder beside it.")] = Path(
        "bench-results/results.md"
    ),
) -> None:
    """Make a page, with pictures, of the results that benchmarks have kept."""
    from benchmarks.errors import BenchError
    from benchmarks.page import draw_all, found
    from benchmarks.page import page as page_of

    if not out.suffix:
        raise typer.BadParameter(f"{str(out)!r}: allowed is a file such as results.md", param_hint="--out")
    runs = found(folder)
    pictures = out.with_suffix("")
    try:
        draw_all(runs, pictures)
        out.write_text(page_of(runs, pictures.name), encoding="utf-8")
    except OSError as error:
        raise BenchError(f"the page can't be written to {out}: {error.strerror}") from error
    typer.echo(f"written: {out}, and its pictures in {pictures}")
