"""``python -m benchmarks worker``."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import typer

from benchmarks.commands.arguments import Out, Quick, RedisUrl, console_of
from benchmarks.worker.options import DEFAULT_OUT, DEFAULT_ROUNDS, MAX_ROUNDS, BrokerKind, WorkerOptions
from refresher.cli.arguments import without_password

_WIDTH_IN_A_FILE: Final = 150

_Rounds: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1, max=MAX_ROUNDS, help=f"Rounds that count, of which the median is taken. [default: {DEFAULT_ROUNDS}]"
    ),
]
_Neo4jUri: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="URI",
        callback=without_password,
        help="Your own Neo4j; NEO4J_USER, NEO4J_PASSWORD and NEO4J_DATABASE are read from the environment. Two hundred "
        "BenchPerson nodes are written, and removed in the end.",
    ),
]


def worker(
    rounds: _Rounds = None,
    broker: Annotated[BrokerKind, typer.Option(help="What is between reader and worker.")] = BrokerKind.REDIS,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Run this group alone (rates, latency, duplicates); may be repeated."),
    ] = None,
    quick: Quick = False,
    redis_url: RedisUrl = None,
    neo4j_uri: _Neo4jUri = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the order of turns and of what is drawn.")] = 1,
    out: Out = DEFAULT_OUT,
) -> None:
    """Measure what a refresh costs a worker, against Celery tasks that do nothing, with the targets beside it.

    Refreshes a second of one process, the time from a trigger to the commit, and what a duplicate costs against
    celery-singleton and celery-once. Ratios of one run, since times of two machines can't be compared. Exits with 0
    whether targets are reached or not.
    """
    from benchmarks.worker.run import run_worker

    options = WorkerOptions(
        rounds=rounds, broker=broker, only=tuple(only or ()), quick=quick, redis_url=redis_url, neo4j_uri=neo4j_uri,
        seed=seed, out=out,
    )  # fmt: skip
    run_worker(options, console_of(_WIDTH_IN_A_FILE))
