"""``refresher dev``."""

from __future__ import annotations

from typing import Annotated

import typer

from refresher.cli.arguments import without_password
from refresher.dev.errors import DevError


def dev(
    modules: Annotated[
        list[str] | None, typer.Argument(metavar="MODULE", help="Modules that use @query; default: REFRESHER_QUERIES.")
    ] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Load eight people who know each other.")] = False,
    neo4j_uri: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            callback=without_password,
            help="Your own Neo4j instead of an embedded graph; NEO4J_USER, NEO4J_PASSWORD and NEO4J_DATABASE are read "
            "from the environment.",
        ),
    ] = None,
    feed: Annotated[
        bool,
        typer.Option("--feed", help="Start Neo4j with the change feed; takes Java 17 or 21, and Maven for their jars."),
    ] = False,
) -> None:
    """Run a whole system for development: Redis, a graph, and a worker that restarts when a Python file changes.

    All of it listens on the loopback address, with random passwords, and is removed at Ctrl-C. A file in the directory
    .refresher-dev gives other terminals the environment; worker.pid beside it has the worker's process id. Not for
    production.
    """
    try:
        from refresher.dev.run import DevOptions, run_dev
    except ModuleNotFoundError as error:
        raise DevError(f"{error.name} is not installed: pip install 'refresher[demo]'") from None
    if neo4j_uri and (sample or feed):
        raise typer.BadParameter("for an embedded graph alone", param_hint="--sample" if sample else "--feed")
    try:
        run_dev(DevOptions(modules or (), sample=sample, neo4j_uri=neo4j_uri, feed=feed), typer.echo)
    except KeyboardInterrupt:
        typer.echo("stopped; everything was removed")
