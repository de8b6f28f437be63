"""Table of commands, `python -m benchmarks`; each lives in its benchmark's `command`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final, ParamSpec

import typer

from api_client import CacheError
from benchmarks.errors import BenchError
from benchmarks.hits.command import hits
from benchmarks.simulate.command import simulate
from benchmarks.stampede.command import stampede
from benchmarks.topology.command import topology
from benchmarks.worker.command import worker
from refresher.demo.errors import DemoError
from refresher.embedded.errors import EmbeddedServerError
from refresher.errors import RefresherError


def page(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", exists=True, file_okay=False, help="Where runs have kept their JSON.")
    ] = Path("benchmarks/results"),
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page; its charts go to a folder beside it.")] = Path(
        "docs/results.md"
    ),
) -> None:
    """Generate the page, with charts, from the results that runs have kept."""
    from benchmarks.reports.kept import load_all
    from benchmarks.reports.page import draw_all
    from benchmarks.reports.page import page as page_of

    if not out.suffix:
        raise typer.BadParameter(f"{str(out)!r}: allowed is a file such as results.md", param_hint="--out")
    runs = load_all(folder)
    charts = out.with_suffix("")
    try:
        draw_all(runs, charts)
        out.write_text(page_of(runs, charts.name), encoding="utf-8")
    except OSError as error:
        raise BenchError(f"the page can't be written to {out}: {error.strerror}") from error
    typer.echo(f"written: {out}, and its charts in {charts}")


P = ParamSpec("P")

# The other packages are peers: one that is not installed is left out.
_NEEDED: Final = ("numpy", "matplotlib")


def _with_packages_checked(command: Callable[P, None]) -> Callable[P, None]:
    """Return the command, which says at once what is not installed, and not when minutes have been measured."""

    @wraps(command)
    def run(*args: P.args, **options: P.kwargs) -> None:
        for module in _NEEDED:
            if find_spec(module) is None:
                raise BenchError(f"{module} is not installed: `make bench` installs it")
        command(*args, **options)

    return run


app: Final = typer.Typer(
    name="benchmarks",
    help="Benchmarks; each starts the servers that it needs.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command(short_help="What a hit costs, beside other caches.")(_with_packages_checked(hits))
app.command(short_help="TTL, β, workers and outages at any size.")(_with_packages_checked(simulate))
app.command(short_help="Strategies, while a hot entry expires.")(_with_packages_checked(stampede))
app.command(short_help="Whether refreshing hubs earlier pays.")(_with_packages_checked(topology))
app.command(short_help="What a refresh costs beside the load.")(_with_packages_checked(worker))
app.command(short_help="A page of what benchmarks have kept.")(_with_packages_checked(page))


def main() -> None:
    """Run the command line; exit codes: 0 done, 1 not measured (one line says why), 2 wrong usage, 130 Ctrl-C."""
    try:
        app(prog_name="python -m benchmarks")
    except (CacheError, RefresherError, DemoError, EmbeddedServerError) as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(1) from None
