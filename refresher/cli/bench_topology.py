"""``refresher bench topology``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from refresher.bench.topology.options import (
    DEFAULT_CLIENTS,
    DEFAULT_EDGE_FACTOR,
    DEFAULT_OUT,
    DEFAULT_QUADRANTS,
    DEFAULT_SEEDS,
    TopologyOptions,
)
from refresher.cli.arguments import duration_of, without_password
from refresher.cli.bench_arguments import RedisUrl, console_of

_WIDTH_IN_A_FILE: Final = 170

_Quadrants: TypeAlias = Annotated[
    tuple[float, float, float, float],
    typer.Option("--quadrants", metavar="A B C D", help="R-MAT's probabilities, together 1; default: SSCA#2's."),
]
_Neo4jUri: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="URI",
        callback=without_password,
        help="Your own Neo4j, without Person nodes; NEO4J_USER, NEO4J_PASSWORD and NEO4J_DATABASE are read from the "
        "environment. What was loaded is removed in the end.",
    ),
]


def topology(
    quick: Annotated[
        bool, typer.Option("--quick", help="Little of everything: shows that all works, not how it compares.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="More levels, the grid on both graphs, longer cells: some two hours.")
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, max=100, help=f"Repetitions, each with graphs, keys and draws of its own. [default: {DEFAULT_SEEDS}]"
        ),
    ] = None,
    ttl: Annotated[
        list[str] | None,
        typer.Option(metavar="DURATION", help="A level of the grid; may be repeated. The first is the base."),
    ] = None,
    pause: Annotated[
        list[str] | None,
        typer.Option(metavar="DURATION", help="Likewise: an added pause of each load; 0: δ is what the query takes."),
    ] = None,
    rate: Annotated[list[float] | None, typer.Option(min=1, help="Likewise: an open loop's reads a second.")] = None,
    beta: Annotated[list[float] | None, typer.Option(min=0.01, max=100, help="A β0 to try at the base.")] = None,
    clients: Annotated[int, typer.Option(min=1, max=1_000, help="Of the closed loop.")] = DEFAULT_CLIENTS,
    cell: Annotated[str | None, typer.Option(metavar="DURATION", help="How long a cell is measured.")] = None,
    scale: Annotated[int | None, typer.Option(min=4, max=20, help="R-MAT: 2**scale possible persons.")] = None,
    edge_factor: Annotated[
        float, typer.Option(min=0.5, max=64, help="R-MAT: edges a possible person.")
    ] = DEFAULT_EDGE_FACTOR,
    quadrants: _Quadrants = DEFAULT_QUADRANTS,
    persons: Annotated[int | None, typer.Option(min=10, max=1_000_000, help="Persons of the social network.")] = None,
    keys: Annotated[int | None, typer.Option(min=3, max=10_000, help="Keys that are read of each graph.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, max=256, help="Processes of the Celery worker.")] = None,
    neo4j_uri: _Neo4jUri = None,
    redis_url: RedisUrl = None,
    seed: Annotated[int, typer.Option(min=0, help="The first seed; the others follow it.")] = 1,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where JSON, CSV and pictures go.")] = DEFAULT_OUT,
) -> None:
    """Measure whether refreshing hubs earlier pays: no early refresh, plain and topology-sensitive, side by side.

    Each in a setting without grace, where readers refresh in their own process, and in this project's, where stale
    values are served while workers refresh. Exits with 0 whatever comes out.
    """
    from refresher.bench.topology.run import run_topology

    options = TopologyOptions(
        quick=quick, full=full, seeds=seeds, clients=clients, scale=scale, edge_factor=edge_factor,
        ttls_seconds=tuple(_positive(text, "--ttl") for text in ttl or ()),
        pauses_seconds=tuple(duration_of(text, "--pause") for text in pause or ()),
        rates=tuple(rate or ()), betas=tuple(beta or ()),
        cell_seconds=None if cell is None else _positive(cell, "--cell"), quadrants=quadrants,
        persons=persons, keys=keys, workers=workers, neo4j_uri=neo4j_uri, redis_url=redis_url, seed=seed, out=out,
    )  # fmt: skip
    run_topology(options, console_of(_WIDTH_IN_A_FILE))


def _positive(text: str, option: str) -> float:
    duration_seconds = duration_of(text, option)
    if duration_seconds <= 0:
        raise typer.BadParameter(f"{text!r}: allowed is more than 0", param_hint=option)
    return duration_seconds
