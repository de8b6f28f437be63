"""``python -m benchmarks hits``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from benchmarks.apparatus.entries import PayloadKind
from benchmarks.arguments import Out, Quick, RedisUrl, console_of

DEFAULT_ROUNDS: Final = 7
MAX_ROUNDS: Final = 1_000
DEFAULT_READERS: Final = 10_000
MAX_STAMPEDE_ROUNDS: Final = 3  # ten thousand threads hold a small machine for many seconds
MAX_READERS: Final = 100_000
DEFAULT_OUT: Final = Path("bench-results/hits")


@dataclass(frozen=True, slots=True)
class Scale:
    """Amount of measuring.

    Attributes:
        rounds: rounds that count; one more, the first, is dropped.
        slices: turns that everyone has in a round.
        slice_seconds: how long a turn takes, about.
        latencies: reads timed one by one, of each kind in each round.
        readers: concurrent readers of a herd, over all its processes.
        herd_rounds: rounds of a herd that count.
        lead_seconds: how far ahead its readers get the common start.
        entries: of the large cache, and of the small one that it is compared with.
    """

    rounds: int
    slices: int
    slice_seconds: float
    latencies: int
    readers: int
    herd_rounds: int
    lead_seconds: float
    entries: tuple[int, int]


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """Options of `python -m benchmarks hits`, as its ``--help`` explains them; None: as much as is usual."""

    rounds: int | None = None
    readers: int | None = None
    redis_url: str | None = None
    only: tuple[str, ...] = ()
    quick: bool = False
    full: bool = False
    uvloop: bool = False
    payload: PayloadKind = PayloadKind.ROWS
    seed: int = 1
    out: Path = DEFAULT_OUT

    @property
    def scale(self) -> Scale:
        if self.quick:
            rounds = self.rounds or 1
            return Scale(rounds, 2, 0.01, 100, self.readers or 200, 1, 0.3, (2_000, 1_000))
        rounds = self.rounds or DEFAULT_ROUNDS
        return Scale(
            rounds,
            8,
            0.05,
            2_000,
            self.readers or DEFAULT_READERS,
            min(rounds, MAX_STAMPEDE_ROUNDS),
            1.0,
            (1_000_000, 1_000),
        )


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
