"""``python -m benchmarks topology``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from benchmarks.arguments import Out, Quick, RedisUrl, console_of
from benchmarks.topology.plan import (
    BASE_BETA,
    DEFAULT_CLIENTS,
    DEFAULT_EDGE_FACTOR,
    DEFAULT_QUADRANTS,
    DEFAULT_SEEDS,
    FULL,
    QUICK,
    USUAL,
    Extent,
    Levels,
    Load,
)
from refresher.cli.arguments import duration_of, without_password

DEFAULT_OUT: Final = Path("bench-results/topology")


@dataclass(frozen=True, slots=True)
class TopologyOptions:
    """Options of `python -m benchmarks topology`, as its ``--help`` explains them; None: as much as is usual."""

    quick: bool = False
    full: bool = False
    seeds: int | None = None
    ttls_seconds: tuple[float, ...] = ()
    pauses_seconds: tuple[float, ...] = ()
    rates: tuple[float, ...] = ()
    betas: tuple[float, ...] = ()
    clients: int = DEFAULT_CLIENTS
    trial_seconds: float | None = None
    scale: int | None = None
    edge_factor: float = DEFAULT_EDGE_FACTOR
    quadrants: tuple[float, float, float, float] = DEFAULT_QUADRANTS
    persons: int | None = None
    keys: int | None = None
    workers: int | None = None
    neo4j_uri: str | None = None
    redis_url: str | None = None
    seed: int = 1
    out: Path = DEFAULT_OUT

    @property
    def extent(self) -> Extent:
        usual = QUICK if self.quick else FULL if self.full else USUAL
        loads = (Load(clients=self.clients), *(Load(reads_per_second=rate) for rate in self.rates))
        levels = Levels(
            self.ttls_seconds or usual.levels.ttls_seconds,
            self.pauses_seconds or usual.levels.pauses_seconds,
            loads if self.rates else (loads[0], *usual.levels.loads),
            usual.levels.skews,
            self.betas or usual.levels.betas,
        )
        return Extent(
            levels,
            self.seeds or usual.seeds,
            usual.graphs_with_grid,
            self.scale or usual.scale,
            self.persons or usual.persons,
            self.keys or usual.keys,
            usual.warm_up_seconds,
            self.trial_seconds or usual.trial_seconds,
            self.workers or usual.workers,
        )


_WIDTH_IN_A_FILE: Final = 170
_SHOWN: Final = TopologyOptions().extent


def _default(*levels: object) -> str:
    return f"[default: {', '.join(map(str, levels))}]"


_Quadrants: TypeAlias = Annotated[
    tuple[float, float, float, float],
    typer.Option("--quadrants", metavar="A B C D", help="R-MAT's probabilities, together 1; default: SSCA#2's."),
]
_Neo4jUri: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="URI",
        callback=without_password,
        help="Your own Neo4j, without Person nodes; NEO4J_USER, NEO4J_PASSWORD and NEO4J_DATABASE are read from the "
        "environment. What was loaded is removed in the end.",
    ),
]
_Full: TypeAlias = Annotated[
    bool, typer.Option("--full", help="More levels, the grid on both graphs, longer cells: some two hours.")
]
_Seeds: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1, max=100, help=f"Repetitions, each with graphs, keys and draws of its own. {_default(DEFAULT_SEEDS)}"
    ),
]
_Ttls: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--ttl",
        metavar="DURATION",
        help="A level of the grid; may be repeated, the first is the base. "
        + _default(*(f"{ttl:g}s" for ttl in _SHOWN.levels.ttls_seconds)),
    ),
]
_Pauses: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--pause",
        metavar="DURATION",
        help="Likewise: an added pause of each load; 0s: δ is what the query takes. "
        + _default(*(f"{pause:g}s" for pause in _SHOWN.levels.pauses_seconds)),
    ),
]
_Rates: TypeAlias = Annotated[
    list[float] | None,
    typer.Option(
        "--rate",
        metavar="NUMBER",
        min=1,
        help="Likewise: an open loop's reads a second. "
        + _default(*(f"{load.reads_per_second:g}" for load in _SHOWN.levels.loads if not load.clients)),
    ),
]
_Betas: TypeAlias = Annotated[
    list[float] | None,
    typer.Option(
        "--beta",
        metavar="NUMBER",
        min=0.01,
        max=100,
        help=f"A β0 to try at the base, beside {BASE_BETA:g}; may be repeated. {_default(*_SHOWN.levels.betas)}",
    ),
]
_Clients: TypeAlias = Annotated[int, typer.Option(min=1, max=1_000, help="Readers of the closed loop.")]
_Cell: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help=f"How long a cell is measured. {_default(f'{_SHOWN.trial_seconds:g}s')}"),
]
_Scale: TypeAlias = Annotated[
    int | None, typer.Option(min=4, max=20, help=f"R-MAT: 2**scale possible persons. {_default(_SHOWN.scale)}")
]
_EdgeFactor: TypeAlias = Annotated[float, typer.Option(min=0.5, max=64, help="R-MAT: edges a possible person.")]
_Persons: TypeAlias = Annotated[
    int | None, typer.Option(min=10, max=1_000_000, help=f"Persons of the social network. {_default(_SHOWN.persons)}")
]
_Keys: TypeAlias = Annotated[
    int | None, typer.Option(min=3, max=10_000, help=f"Keys that are read of each graph. {_default(_SHOWN.keys)}")
]
_Workers: TypeAlias = Annotated[
    int | None, typer.Option(min=1, max=256, help=f"Processes of the Celery worker. {_default(_SHOWN.workers)}")
]
_Seed: TypeAlias = Annotated[int, typer.Option(min=0, help="The first seed; the others follow it.")]


def topology(
    quick: Quick = False,
    full: _Full = False,
    seeds: _Seeds = None,
    ttl: _Ttls = None,
    pause: _Pauses = None,
    rate: _Rates = None,
    beta: _Betas = None,
    clients: _Clients = DEFAULT_CLIENTS,
    trial: _Cell = None,
    scale: _Scale = None,
    edge_factor: _EdgeFactor = DEFAULT_EDGE_FACTOR,
    quadrants: _Quadrants = DEFAULT_QUADRANTS,
    persons: _Persons = None,
    keys: _Keys = None,
    workers: _Workers = None,
    neo4j_uri: _Neo4jUri = None,
    redis_url: RedisUrl = None,
    seed: _Seed = 1,
    out: Out = DEFAULT_OUT,
) -> None:
    """Measure whether refreshing hubs earlier pays: no early refresh, plain and topology-sensitive, side by side.

    Each in a setting without grace, where readers refresh in their own process, and in this project's, where stale
    values are served while workers refresh. Exits with 0 whatever comes out.
    """
    from benchmarks.topology.run import run_topology

    options = TopologyOptions(
        quick=quick, full=full, seeds=seeds, clients=clients, scale=scale, edge_factor=edge_factor,
        ttls_seconds=tuple(_positive(text, "--ttl") for text in ttl or ()),
        pauses_seconds=tuple(duration_of(text, "--pause") for text in pause or ()),
        rates=tuple(rate or ()), betas=tuple(beta or ()),
        trial_seconds=None if trial is None else _positive(trial, "--cell"), quadrants=quadrants,
        persons=persons, keys=keys, workers=workers, neo4j_uri=neo4j_uri, redis_url=redis_url, seed=seed, out=out,
    )  # fmt: skip
    run_topology(options, console_of(_WIDTH_IN_A_FILE))


def _positive(text: str, option: str) -> float:
    duration_seconds = duration_of(text, option)
    if duration_seconds <= 0:
        raise typer.BadParameter(f"{text!r}: allowed is more than 0", param_hint=option)
    return duration_seconds
