"""``refresher demo``."""

from __future__ import annotations

from typing import Annotated

import typer

from refresher.demo import options
from refresher.demo.options import DemoOptions, GraphServer


def demo(
    seconds: Annotated[
        float, typer.Option(min=options.MIN_SECONDS, max=options.MAX_SECONDS, help="How long the readers read.")
    ] = options.DEFAULT_SECONDS,
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything running, traffic too, until Ctrl-C.")] = False,
    no_chaos: Annotated[bool, typer.Option("--no-chaos", help="Don't kill the worker in the middle.")] = False,
    persons: Annotated[
        int,
        typer.Option(
            min=options.MIN_PERSONS, max=options.MAX_PERSONS, help="In the graph, at least; each knows ten others."
        ),
    ] = options.DEFAULT_PERSONS,
    graph_server: Annotated[
        GraphServer, typer.Option(help="The graph that is started. Neo4j takes Java 17 or 21, and Maven for its jars.")
    ] = GraphServer.ARCADEDB,
    feed: Annotated[
        bool, typer.Option("--feed", help="Show staleness with the change feed and without it; needs Neo4j's.")
    ] = False,
    readers: Annotated[
        int, typer.Option(min=1, max=options.MAX_READERS, help="Reader processes.")
    ] = options.DEFAULT_READERS,
    seed: Annotated[int, typer.Option(min=0, help="Seed of graph and traffic.")] = 1,
) -> None:
    """Watch it work: a graph, skewed traffic, a worker that is killed, and no read that waits for it.

    Starts Redis, a graph database, a Celery worker and Flower, all embedded and removed at the end. Exits with 1 when a
    read failed or the cache broke a guarantee.
    """
    try:
        from rich.console import Console

        from refresher.demo.run import run_demo
    except ModuleNotFoundError as error:
        from refresher.demo.errors import DemoError

        raise DemoError(f"{error.name} is not installed: pip install 'refresher[demo]'") from None
    if feed and graph_server is not GraphServer.NEO4J:
        raise typer.BadParameter("the change feed needs APOC, which --graph-server neo4j brings", param_hint="--feed")
    chosen = DemoOptions(
        seconds=seconds, keep=keep, chaos=not no_chaos, persons=persons, readers=readers, seed=seed,
        graph_server=graph_server, feed=feed,
    )  # fmt: skip
    raise typer.Exit(run_demo(chosen, Console(highlight=False)))
