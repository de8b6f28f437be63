"""Options of ``python -m benchmarks topology``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final

import typer

from benchmarks.options import Options, RedisUrl
from benchmarks.topology.plan import (
    BASE_BETA,
    DEFAULT_CLIENTS,
    DEFAULT_EDGE_FACTOR,
    DEFAULT_QUADRANTS,
    FULL,
    QUICK,
    USUAL,
    Extent,
    Load,
)
from refresher.cli.arguments import duration_of, without_password


def _duration(option: str, *, may_be_0: bool = False) -> Callable[[str], float]:
    """Return the parser of a duration."""

    def parse(text: str) -> float:
        duration_seconds = duration_of(text, option)
        if not duration_seconds and not may_be_0:
            raise typer.BadParameter(f"{text!r}: allowed is more than 0", param_hint=option)
        return duration_seconds

    return parse


def _default(*levels: object) -> str:
    return f"[default: {', '.join(map(str, levels))}]"


_RATES: Final = [load.reads_per_second for load in USUAL.loads if not load.clients]


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
            min=1, max=100, help=f"Repetitions, each with graphs, keys and draws of its own. {_default(USUAL.seeds)}"
        ),
    ] = None
    ttl: Annotated[
        list[float],
        typer.Option(
            parser=_duration("--ttl"), metavar="DURATION",
            help="A level of the grid; may be repeated, the first is the base. "
            + _default(*(f"{ttl:g}s" for ttl in USUAL.ttls_seconds)),
        ),
    ] = field(default_factory=list)  # fmt: skip
    pause: Annotated[
        list[float],
        typer.Option(
            parser=_duration("--pause", may_be_0=True), metavar="DURATION",
            help="Likewise: an added pause of each load; 0s: δ is what the query takes. "
            + _default(*(f"{pause:g}s" for pause in USUAL.pauses_seconds)),
        ),
    ] = field(default_factory=list)  # fmt: skip
    rate: Annotated[
        list[float],
        typer.Option(
            min=1, metavar="NUMBER",
            help="Likewise: an open loop's reads a second. " + _default(*(f"{rate:g}" for rate in _RATES)),
        ),
    ] = field(default_factory=list)  # fmt: skip
    beta: Annotated[
        list[float],
        typer.Option(
            min=0.01, max=100, metavar="NUMBER",
            help=f"A β0 to try at the base, beside {BASE_BETA:g}; may be repeated. {_default(*USUAL.betas)}",
        ),
    ] = field(default_factory=list)  # fmt: skip
    clients: Annotated[int, typer.Option(min=1, max=1_000, help="Readers of the closed loop.")] = DEFAULT_CLIENTS
    cell: Annotated[
        float | None,
        typer.Option(
            parser=_duration("--cell"), metavar="DURATION",
            help=f"How long a cell is measured. {_default(f'{USUAL.trial_seconds:g}s')}",
        ),
    ] = None  # fmt: skip
    scale: Annotated[
        int | None, typer.Option(min=4, max=20, help=f"R-MAT: 2**scale possible persons. {_default(USUAL.scale)}")
    ] = None
    edge_factor: Annotated[float, typer.Option(min=0.5, max=64, help="R-MAT: edges a possible person.")] = (
        DEFAULT_EDGE_FACTOR
    )
    quadrants: Annotated[
        tuple[float, float, float, float],
        typer.Option(metavar="A B C D", help="R-MAT's probabilities, together 1; default: SSCA#2's."),
    ] = DEFAULT_QUADRANTS
    persons: Annotated[
        int | None,
        typer.Option(min=10, max=1_000_000, help=f"Persons of the social network. {_default(USUAL.persons)}"),
    ] = None
    keys: Annotated[
        int | None, typer.Option(min=3, max=10_000, help=f"Keys that are read of each graph. {_default(USUAL.keys)}")
    ] = None
    workers: Annotated[
        int | None, typer.Option(min=1, max=256, help=f"Processes of the Celery worker. {_default(USUAL.workers)}")
    ] = None
    neo4j_uri: Annotated[
        str | None,
        typer.Option(
            metavar="URI", callback=without_password,
            help="Your own Neo4j, without Person nodes; NEO4J_USER, NEO4J_PASSWORD and NEO4J_DATABASE are read from "
            "the environment. What was loaded is removed in the end.",
        ),
    ] = None  # fmt: skip
    redis_url: RedisUrl = None

    @property
    def extent(self) -> Extent:
        """The usual extent, with what was given in its place."""
        usual = QUICK if self.quick else FULL if self.full else USUAL
        rates = self.rate or [load.reads_per_second for load in usual.loads if not load.clients]
        given: dict[str, Any] = {
            "ttls_seconds": tuple(self.ttl), "pauses_seconds": tuple(self.pause), "betas": tuple(self.beta),
            "loads": (Load(clients=self.clients), *(Load(reads_per_second=rate) for rate in rates)),
            "seeds": self.seeds, "scale": self.scale, "persons": self.persons, "keys": self.keys,
            "trial_seconds": self.cell, "workers": self.workers,
        }  # fmt: skip
        return replace(usual, **{name: value for name, value in given.items() if value})
