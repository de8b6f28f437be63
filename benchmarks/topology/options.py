"""Options of ``python -m benchmarks topology``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import typer

from benchmarks.options import Neo4jUri, Options, RedisUrl
from benchmarks.topology.plan import FULL, QUICK, USUAL, Extent
from refresher.cli.arguments import duration_of


def _cell(text: str) -> float:
    duration_seconds = duration_of(text, "--cell")
    if not duration_seconds:
        raise typer.BadParameter(f"{text!r}: expected more than 0", param_hint="--cell")
    return duration_seconds


@dataclass(frozen=True, kw_only=True)
class TopologyOptions(Options):
    """Measure whether refreshing hubs earlier pays: no early refresh, plain and topology-sensitive, side by side.

    Each in a setting without grace, where readers refresh in their own process, and in this project's, where stale
    values are served while workers refresh. Exits with 0 whatever comes out.
    """

    full: Annotated[
        bool, typer.Option("--full", help="More levels, the grid on both graphs, longer cells: some two hours.")
    ] = False
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, max=100,
            help=f"Repetitions, each with graphs, keys and draws of its own. [default: {USUAL.seeds}]",
        ),
    ] = None  # fmt: skip
    cell: Annotated[
        float | None,
        typer.Option(
            parser=_cell, metavar="DURATION",
            help=f"How long a cell is measured. [default: {USUAL.trial_seconds:g}s]",
        ),
    ] = None  # fmt: skip
    neo4j_uri: Neo4jUri = None
    redis_url: RedisUrl = None

    @property
    def extent(self) -> Extent:
        usual = QUICK if self.quick else FULL if self.full else USUAL
        return replace(usual, seeds=self.seeds or usual.seeds, trial_seconds=self.cell or usual.trial_seconds)
