"""``refresher bench stampede``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from refresher.bench.stampede.options import (
    DEFAULT_OUT,
    MOST_ROUNDS,
    MOST_SECONDS,
    MOST_WORKERS,
    Scenario,
    StampedeOptions,
)
from refresher.bench.stampede.terms import Kind, OriginKind
from refresher.cli.bench_arguments import RedisUrl, console_of

_WIDTH_IN_A_FILE: Final = 200
_OWN: Final = "[default: the scenario's]"


def stampede(
    scenario: Annotated[
        list[Scenario] | None,
        typer.Option(help="What is played; may be repeated. [default: workers; with --quick all]"),
    ] = None,
    strategy: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Run this strategy; may be repeated. [default: all]")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=MOST_WORKERS, help=f"Readers of each strategy. {_OWN}")
    ] = None,
    readers: Annotated[Kind | None, typer.Option(help=f"What a reader is. {_OWN}")] = None,
    expires: Annotated[
        float | None, typer.Option(min=0.1, max=MOST_SECONDS, help=f"Seconds that a value is fresh. {_OWN}")
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(min=0.001, max=MOST_SECONDS, help=f"Seconds of the pause that stands for a recompute. {_OWN}"),
    ] = None,
    origin: Annotated[
        OriginKind, typer.Option(help="What a recompute is: that pause, or a query on the embedded graph.")
    ] = OriginKind.PAUSE,
    lease: Annotated[
        float | None,
        typer.Option(min=0.05, max=30.0, help=f"Seconds that locks last, where that can be set. {_OWN}"),
    ] = None,
    beta: Annotated[
        float, typer.Option(min=0.001, max=1000.0, help="β of XFetch: the greater, the earlier. 0.5 to 2 is usual.")
    ] = 1.0,
    rnd_precision: Annotated[
        int, typer.Option(min=0, max=15, help="Digits of XFetch's draw, which bound how early it can be; 0: all.")
    ] = 0,
    seconds: Annotated[
        float | None, typer.Option(min=0.5, max=MOST_SECONDS, help=f"Seconds that are counted. {_OWN}")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, max=MOST_ROUNDS, help=f"Rounds of a herd that count. {_OWN}")
    ] = None,
    report_every: Annotated[float, typer.Option(min=0.1, max=MOST_SECONDS, help="Seconds between two reports.")] = 10.0,
    quick: Annotated[
        bool, typer.Option("--quick", help="Little of everything: shows that all works, not how fast it is.")
    ] = False,
    redis_url: RedisUrl = None,
    seed: Annotated[int, typer.Option(min=0, help="Of pauses, orders and the graph.")] = 1,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where JSON, CSV and pictures go.")] = DEFAULT_OUT,
) -> None:
    """Let many readers meet one value that expires: four classic strategies, this project, and other caches.

    Ctrl-C ends the reading and shows what was counted. Exits with 0 whether targets are reached or not.
    """
    from refresher.bench.stampede.run import run_stampede

    options = StampedeOptions(
        scenarios=tuple(scenario or ()), strategies=tuple(strategy or ()), workers=workers, readers=readers,
        expires=expires, delta=delta, lease=lease, seconds=seconds, rounds=rounds, origin=origin, beta=beta,
        rnd_precision=rnd_precision, report_every=report_every, redis_url=redis_url, quick=quick, seed=seed, out=out,
    )  # fmt: skip
    run_stampede(options, console_of(_WIDTH_IN_A_FILE))
