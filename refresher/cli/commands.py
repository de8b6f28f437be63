"""The table of commands. A new one is a file with a function, and a line here."""

from __future__ import annotations

from typing import Annotated

import typer

from api_client import CacheError, __version__
from refresher.cli.bench import bench
from refresher.cli.dead import dead
from refresher.cli.demo import demo
from refresher.cli.doctor import doctor
from refresher.cli.explain import explain
from refresher.cli.health import health
from refresher.cli.inspect import inspect
from refresher.cli.invalidate import invalidate
from refresher.cli.queries import queries
from refresher.cli.refresh import refresh
from refresher.cli.status import status
from refresher.cli.warm import warm
from refresher.errors import RefresherError

# No rich markup and no pretty tracebacks: help and errors are plain lines, in a terminal as in a log.
app = typer.Typer(
    name="refresher",
    help="A background-refresh cache for expensive graph queries.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command()(queries)
app.command()(status)
app.command()(explain)
app.command()(inspect)
app.command()(warm)
app.command()(refresh)
app.command()(invalidate)
app.command()(doctor)
app.command()(health)
app.add_typer(bench)
app.add_typer(dead)


def expected_errors() -> tuple[type[Exception], ...]:
    """Return the errors whose message is meant for the user."""
    errors: list[type[Exception]] = [CacheError, RefresherError]
    from refresher.demo.errors import DemoError
    from refresher.embedded.errors import EmbeddedServerError

    return (*errors, DemoError, EmbeddedServerError)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"refresher {__version__}")
        raise typer.Exit


@app.callback()
def _refresher(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Read options that come before the command."""
