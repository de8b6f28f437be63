"""``python -m benchmarks stampede``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from benchmarks.arguments import Out, Quick, RedisUrl, console_of
from benchmarks.stampede.config import FULL, QUICK, Kind, OriginKind, Scale, Scenario

DEFAULT_OUT: Final = Path("bench-results/stampede")
MAX_WORKERS: Final = 100_000
MAX_SECONDS: Final = 86_400.0
MAX_ROUNDS: Final = 100


@dataclass(frozen=True, slots=True)
class StampedeOptions:
    """Options of `python -m benchmarks stampede`, as its ``--help`` explains them; None: as much as is usual."""

    scenarios: tuple[Scenario, ...] = ()
    strategies: tuple[str, ...] = ()
    workers: int | None = None
    readers: Kind | None = None
    expires: float | None = None
    delta: float | None = None
    lease: float | None = None
    seconds: float | None = None
    rounds: int | None = None
    origin: OriginKind = OriginKind.PAUSE
    beta: float = 1.0
    rnd_precision: int = 0
    report_every: float = 10.0
    redis_url: str | None = None
    quick: bool = False
    seed: int = 1
    out: Path = DEFAULT_OUT

    @property
    def scenarios_to_run(self) -> tuple[Scenario, ...]:
        wanted = self.scenarios or (tuple(Scenario) if self.quick else (Scenario.WORKERS,))
        return tuple(scenario for scenario in Scenario if scenario in wanted)

    def scale(self, scenario: Scenario) -> Scale:
        usual = (QUICK if self.quick else FULL)[scenario]
        return Scale(
            workers=self.workers or usual.workers,
            expires=self.expires or usual.expires,
            delta=self.delta or usual.delta,
            lease=self.lease or usual.lease,
            seconds=self.seconds or usual.seconds,
            rate=usual.rate,
            concurrently=usual.concurrently,
            rounds=self.rounds or usual.rounds,
            lead=usual.lead,
        )


_WIDTH_IN_A_FILE: Final = 200
_OWN: Final = "[default: the scenario's]"


_Scenarios: TypeAlias = Annotated[
    list[Scenario] | None,
    typer.Option(
        "--scenario",
        metavar="|".join(Scenario),
        help="What is played; may be repeated. [default: workers; with --quick all]",
    ),
]
_Strategies: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--strategy", metavar="NAME", help="Run this strategy; may be repeated. [default: all]"),
]
_Workers: TypeAlias = Annotated[
    int | None, typer.Option(min=1, max=MAX_WORKERS, help=f"Readers of each strategy. {_OWN}")
]
_Readers: TypeAlias = Annotated[Kind | None, typer.Option(help=f"What a reader is. {_OWN}")]
_Expires: TypeAlias = Annotated[
    float | None, typer.Option(min=0.1, max=MAX_SECONDS, help=f"Seconds that a value is fresh. {_OWN}")
]
_Delta: TypeAlias = Annotated[
    float | None,
    typer.Option(min=0.001, max=MAX_SECONDS, help=f"Seconds of the pause that stands for a recompute. {_OWN}"),
]
_Origin: TypeAlias = Annotated[
    OriginKind, typer.Option(help="What a recompute is: that pause, or a query on the embedded graph.")
]
_Lease: TypeAlias = Annotated[
    float | None,
    typer.Option(min=0.05, max=30.0, help=f"Seconds that locks last, where that can be set. {_OWN}"),
]
_Beta: TypeAlias = Annotated[
    float, typer.Option(min=0.001, max=1000.0, help="β of XFetch: the greater, the earlier. 0.5 to 2 is usual.")
]
_RndPrecision: TypeAlias = Annotated[
    int, typer.Option(min=0, max=15, help="Digits of XFetch's draw, which bound how early it can be; 0: all.")
]
_Seconds: TypeAlias = Annotated[
    float | None, typer.Option(min=0.5, max=MAX_SECONDS, help=f"Seconds that are counted. {_OWN}")
]
_Rounds: TypeAlias = Annotated[
    int | None, typer.Option(min=1, max=MAX_ROUNDS, help=f"Rounds of a herd that count. {_OWN}")
]
_ReportEvery: TypeAlias = Annotated[float, typer.Option(min=0.1, max=MAX_SECONDS, help="Seconds between two reports.")]
_Seed: TypeAlias = Annotated[int, typer.Option(min=0, help="Of pauses, orders and the graph.")]


def stampede(
    scenario: _Scenarios = None,
    strategy: _Strategies = None,
    workers: _Workers = None,
    readers: _Readers = None,
    expires: _Expires = None,
    delta: _Delta = None,
    origin: _Origin = OriginKind.PAUSE,
    lease: _Lease = None,
    beta: _Beta = 1.0,
    rnd_precision: _RndPrecision = 0,
    seconds: _Seconds = None,
    rounds: _Rounds = None,
    report_every: _ReportEvery = 10.0,
    quick: Quick = False,
    redis_url: RedisUrl = None,
    seed: _Seed = 1,
    out: Out = DEFAULT_OUT,
) -> None:
    """Let many readers meet one value that expires: four classic strategies, this project, and other caches.

    Ctrl-C ends the reading and shows what was counted. Exits with 0 whether targets are reached or not.
    """
    from benchmarks.stampede.run import run_stampede

    options = StampedeOptions(
        scenarios=tuple(scenario or ()), strategies=tuple(strategy or ()), workers=workers, readers=readers,
        expires=expires, delta=delta, lease=lease, seconds=seconds, rounds=rounds, origin=origin, beta=beta,
        rnd_precision=rnd_precision, report_every=report_every, redis_url=redis_url, quick=quick, seed=seed, out=out,
    )  # fmt: skip
    run_stampede(options, console_of(_WIDTH_IN_A_FILE))
