"""Table of commands, `python -m benchmarks`: each benchmark has `options` and a `run`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import MISSING, fields
from importlib import import_module
from importlib.util import find_spec
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints

import typer
from rich.console import Console

from api_client import CacheError
from benchmarks.errors import BenchError
from benchmarks.feed.options import FeedOptions
from benchmarks.hits.options import HitsOptions
from benchmarks.options import Options
from benchmarks.reports.provenance import make_folder
from benchmarks.simulate.options import SimulateOptions
from benchmarks.stampede.options import StampedeOptions
from benchmarks.topology.options import TopologyOptions
from benchmarks.worker.options import WorkerOptions
from refresher.errors import RefresherError

_NEEDED: Final = ("aiocache", "cacheback", "cashews", "django_redis", "dogpile", "matplotlib", "numba", "numpy")
_WIDTH_IN_A_FILE: Final = 240


def _check_packages() -> None:
    """Report missing packages at once, rather than after minutes of measurements."""
    if missing := [module for module in _NEEDED if find_spec(module) is None]:
        raise BenchError(f"not installed: {', '.join(missing)}; `make bench` installs it")


def page(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", exists=True, file_okay=False, help="Where runs have kept their JSON.")
    ] = Path("benchmarks/results"),
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page; its charts go to a folder beside it.")] = Path(
        "docs/explanation/benchmarks/results.md"
    ),
) -> None:
    """Generate the page, with charts, from the results that runs have kept."""
    from benchmarks.reports.kept import load_all
    from benchmarks.reports.page import draw_all
    from benchmarks.reports.page import page as page_of

    _check_packages()
    if not out.suffix:
        raise typer.BadParameter(f"{str(out)!r}: expected a file such as results.md", param_hint="--out")
    runs = load_all(folder)
    charts = out.with_suffix("")
    try:
        draw_all(runs, charts)
        out.write_text(page_of(runs, charts.name), encoding="utf-8")
    except OSError as error:
        raise BenchError(f"the page can't be written to {out}: {error.strerror}") from error
    typer.echo(f"written: {out}, and its charts in {charts}")


def _command(name: str, options: type[Options]) -> Callable[..., None]:
    """Return the command for ``benchmarks.<name>.run``, with an option for each field of its dataclass."""

    def command(**given: Any) -> None:
        _check_packages()
        console = Console(highlight=False)
        if not console.is_terminal:
            console = Console(highlight=False, width=_WIDTH_IN_A_FILE)
        make_folder(given["out"])
        import_module(f"benchmarks.{name}.run").run(options(**given), console)

    hints = get_type_hints(options, include_extras=True)
    defaults = {
        field.name: field.default if field.default_factory is MISSING else field.default_factory()
        for field in fields(options)
    } | {"out": Path("bench-results") / name}
    command.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Parameter(option, Parameter.KEYWORD_ONLY, default=default, annotation=hints[option])
            for option, default in defaults.items()
        ]
    )
    command.__name__, command.__doc__ = name, options.__doc__
    return command


app: Final = typer.Typer(
    name="benchmarks",
    help="Benchmarks; each starts the servers that it needs.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)
for _name, _options, _help in (
    ("feed", FeedOptions, "How stale the graph's change feed leaves values, and its price."),
    ("hits", HitsOptions, "What a hit costs, beside other caches."),
    ("simulate", SimulateOptions, "TTL, β, workers and outages at any size."),
    ("stampede", StampedeOptions, "Strategies, while a hot entry expires."),
    ("topology", TopologyOptions, "Whether refreshing hubs earlier pays."),
    ("worker", WorkerOptions, "What a refresh costs beside the load."),
):
    app.command(short_help=_help)(_command(_name, _options))
app.command(short_help="A page of what benchmarks have kept.")(page)


def main() -> None:
    """Run the command line; exit codes: 0 done, 1 not measured (one line says why), 2 wrong usage, 130 Ctrl-C."""
    try:
        app(prog_name="python -m benchmarks")
    except (CacheError, RefresherError) as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(1) from None
