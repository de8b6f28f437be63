"""Options of ``python -m benchmarks topology``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import typer

from benchmarks.options import Options
from benchmarks.topology.plan import QUICK, USUAL, Extent


@dataclass(frozen=True, kw_only=True)
class TopologyOptions(Options):
    """Measure whether refreshing hubs earlier pays: no early refresh, plain and topology-sensitive, side by side.

    Each in a setting without grace, where readers refresh in their own process, and in this project's, where stale
    values are served while workers refresh. Exits with 0 whatever comes out.
    """

    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, max=100,
            help=f"Repetitions, each with graphs, keys and draws of its own. [default: {USUAL.seeds}]",
        ),
    ] = None  # fmt: skip

    @property
    def extent(self) -> Extent:
        usual = QUICK if self.quick else USUAL
        return replace(usual, seeds=self.seeds or usual.seeds)
