"""The table of commands. A new command is a function in its subject's file, plus an import and a line here."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from api_client import CacheError, __version__
from refresher.cli.dead import dead
from refresher.cli.demo import demo
from refresher.cli.dev import dev
from refresher.cli.doctor import doctor
from refresher.cli.feed import feed
from refresher.cli.health import health
from refresher.cli.queries import queries
from refresher.cli.read import explain, get
from refresher.cli.refresh import invalidate, refresh, warm
from refresher.cli.status import status
from refresher.errors import RefresherError

# No rich markup and no pretty tracebacks, so that help and errors are plain lines in a terminal and in a log.
app: Final = typer.Typer(
    name="refresher",
    help="A background-refresh cache for expensive graph queries.",
    epilog="Exit codes: 0 done, 1 something is wrong, 2 wrong usage. Servers are those of the environment "
    "(CACHE_REDIS_URL, CACHE_BROKER_URL, NEO4J_URI); demo and dev start their own.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
# The short help fits on a line of the list; a command's --help has the rest.
app.command(short_help="Watch it work, with a worker that is killed.")(demo)
app.command(short_help="Run a whole system for development.")(dev)
app.command(short_help="List the queries that a worker here can load.")(queries)
app.command(short_help="Show what is cached, queued, running and failing.")(status)
app.command(short_help="Read a value as an application does.")(get)
app.command(short_help="Show why a value is or isn't being refreshed.")(explain)
app.command(short_help="Load keys that are not cached yet.")(warm)
app.command(short_help="Load a value now.")(refresh)
app.command(short_help="Make a value stale, or drop it.")(invalidate)
app.command(short_help="Check all parts, and show how to fix what is wrong.")(doctor)
app.command(short_help="Check whether this host's worker is ready, or live.")(health)
app.add_typer(feed, name="feed", short_help="Invalidate by the graph's changes, whoever wrote them.")
app.add_typer(dead, short_help="List, retry or drop abandoned refreshes.")


EXPECTED_ERRORS: Final = (CacheError, RefresherError)
"""Errors with messages for the user."""


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
    """Read the options before the command."""
