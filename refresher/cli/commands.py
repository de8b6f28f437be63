"""The table of commands. A new one is a file with a function, and a line here."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from api_client import CacheError, __version__
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
app: Final = typer.Typer(
    name="refresher",
    help="A background-refresh cache for expensive graph queries.",
    epilog="Exit codes: 0 done, 1 something is wrong, 2 wrong usage. Servers are those of the environment "
    "(CACHE_REDIS_URL, CACHE_BROKER_URL, NEO4J_URI); demo starts its own.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
# What fits on a line of the list; --help of a command says the rest.
app.command(short_help="Watch it work, with a worker that is killed.")(demo)
app.command(short_help="List the queries that a worker here can load.")(queries)
app.command(short_help="Show what is cached, under way, waiting and failing.")(status)
app.command(short_help="Tell why a value is refreshed now, or not.")(explain)
app.command(short_help="Show what Redis has of a key, field by field.")(inspect)
app.command(short_help="Load keys that are not there yet.")(warm)
app.command(short_help="Load a value now.")(refresh)
app.command(short_help="Make a value stale from now on, or gone.")(invalidate)
app.command(short_help="Look at all parts, and say how to mend what is wrong.")(doctor)
app.command(short_help="Ask this host's worker whether it is ready, or live.")(health)
app.add_typer(dead, short_help="See, retry or drop refreshes that were given up.")


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
