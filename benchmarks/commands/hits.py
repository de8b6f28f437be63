"""``python -m benchmarks hits``."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import typer

from benchmarks.commands.arguments import Out, Quick, RedisUrl, console_of
from benchmarks.options import (
    DEFAULT_OUT,
    DEFAULT_READERS,
    DEFAULT_ROUNDS,
    MAX_READERS,
    MAX_ROUNDS,
    BenchOptions,
)
from benchmarks.payloads import PayloadKind

_WIDTH_IN_A_FILE: Final = 150

_Rounds: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1, max=MAX_ROUNDS, help=f"Rounds that count, of which the median is taken. [default: {DEFAULT_ROUNDS}]"
    ),
]
_Readers: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=4, max=MAX_READERS, help=f"Concurrent readers where an entry expires. [default: {DEFAULT_READERS}]"
    ),
]


def hits(
    rounds: _Rounds = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Run this group alone; may be repeated. A wrong name is answered with all."),
    ] = None,
    quick: Quick = False,
    full: Annotated[
        bool, typer.Option("--full", help="Also what takes minutes and 3 GB of memory: a million entries.")
    ] = False,
    payload: Annotated[
        PayloadKind, typer.Option(help="What the values are: rows of a query, or one text; 1 KiB both.")
    ] = PayloadKind.ROWS,
    readers: _Readers = None,
    uvloop: Annotated[bool, typer.Option("--uvloop", help="Run the asyncio modes on uvloop.")] = False,
    redis_url: RedisUrl = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the order of turns and of what is drawn.")] = 1,
    out: Out = DEFAULT_OUT,
) -> None:
    """Measure what a hit costs, against redis-py itself and against other caches, with the targets beside it.

    Ratios of one run, since times of two machines can't be compared. Exits with 0 whether targets are reached or not.
    """
    from benchmarks.hits.run import run_hits

    options = BenchOptions(
        rounds=rounds, readers=readers, redis_url=redis_url, only=tuple(only or ()), quick=quick, full=full,
        uvloop=uvloop, payload=payload, seed=seed, out=out,
    )  # fmt: skip
    run_hits(options, console_of(_WIDTH_IN_A_FILE))
