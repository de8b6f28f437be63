"""Options of ``python -m benchmarks stampede``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

import typer

from benchmarks.options import Options
from benchmarks.stampede.config import FULL, QUICK, Scale, Scenario


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
    rounds: Annotated[int | None, typer.Option(min=1, max=100, help="Rounds of a herd that count. [default: 3]")] = None

    @property
    def scenarios_to_run(self) -> list[Scenario]:
        wanted = self.scenario or (list(Scenario) if self.quick else [Scenario.WORKERS])
        return [scenario for scenario in Scenario if scenario in wanted]

    def scale(self, scenario: Scenario) -> Scale:
        """Return the scenario's usual scale, with the given values in place of the usual ones."""
        usual = (QUICK if self.quick else FULL)[scenario]
        return replace(usual, rounds=self.rounds) if self.rounds and usual.rounds else usual
