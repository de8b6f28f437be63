"""Options of ``python -m benchmarks stampede``."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Final

import typer

from benchmarks.options import Options, RedisUrl
from benchmarks.stampede.config import FULL, QUICK, Scale, Scenario

_MAX_SECONDS: Final = 86_400.0
_OWN: Final = "[default: the scenario's]"


@dataclass(frozen=True, kw_only=True)
class StampedeOptions(Options):
    """Let many readers meet one value that expires: four classic strategies, this project, and other caches.

    Exits with 0 whether targets are reached or not.
    """

    scenario: Annotated[
        list[Scenario],
        typer.Option(
            metavar="|".join(Scenario), help="What is played; may be repeated. [default: workers; with --quick all]"
        ),
    ] = field(default_factory=list)
    strategy: Annotated[
        list[str], typer.Option(metavar="NAME", help="Run this strategy; may be repeated. [default: all]")
    ] = field(default_factory=list)
    workers: Annotated[int | None, typer.Option(min=1, max=100_000, help=f"Readers of each strategy. {_OWN}")] = None
    expires: Annotated[
        float | None, typer.Option(min=0.1, max=_MAX_SECONDS, help=f"Seconds that a value is fresh. {_OWN}")
    ] = None
    delta: Annotated[
        float | None,
        typer.Option(min=0.001, max=_MAX_SECONDS, help=f"Seconds of the pause that stands for a recompute. {_OWN}"),
    ] = None
    lease: Annotated[
        float | None, typer.Option(min=0.05, max=30.0, help=f"Seconds that locks last, where that can be set. {_OWN}")
    ] = None
    beta: Annotated[
        float, typer.Option(min=0.001, max=1000.0, help="β of XFetch: the greater, the earlier. 0.5 to 2 is usual.")
    ] = 1.0
    rnd_precision: Annotated[
        int, typer.Option(min=0, max=15, help="Digits of XFetch's draw, which bound how early it can be; 0: all.")
    ] = 0
    seconds: Annotated[
        float | None, typer.Option(min=0.5, max=_MAX_SECONDS, help=f"Seconds that are counted. {_OWN}")
    ] = None
    rounds: Annotated[int | None, typer.Option(min=1, max=100, help=f"Rounds of a herd that count. {_OWN}")] = None
    redis_url: RedisUrl = None

    @property
    def scenarios_to_run(self) -> list[Scenario]:
        wanted = self.scenario or (list(Scenario) if self.quick else [Scenario.WORKERS])
        return [scenario for scenario in Scenario if scenario in wanted]

    def scale(self, scenario: Scenario) -> Scale:
        """Return the scenario's usual scale, with what was given in its place."""
        usual = (QUICK if self.quick else FULL)[scenario]
        given = {one.name: value for one in fields(Scale) if (value := getattr(self, one.name, None))}
        return replace(usual, **given)
