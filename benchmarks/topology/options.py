"""What `python -m benchmarks topology` was asked to measure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.topology.levels import GraphKind, Load, Skew

DEFAULT_SEEDS: Final = 5
DEFAULT_OUT: Final = Path("bench-results/topology")
DEFAULT_CLIENTS: Final = 2
"""Of the closed loop. They read some hundred times a second, as the harness of that setting did (255 to 305);
eight read thousands of times, and so often that a plain β protects nearly every key."""
BASE_TTL_SECONDS: Final = 2.0
BASE_PAUSE_SECONDS: Final = 0.05
BASE_BETA: Final = 1.0
DEFAULT_EDGE_FACTOR: Final = 8.0
DEFAULT_QUADRANTS: Final = (0.55, 0.1, 0.1, 0.25)
"""Those of SSCA#2."""


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of the grid, each with each; the first of each is the base. Loads: a closed loop, then open ones."""

    ttls_seconds: tuple[float, ...]
    pauses_seconds: tuple[float, ...]
    loads: tuple[Load, ...]
    skews: tuple[Skew, ...]
    betas: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Extent:
    """How much of it is measured.

    Attributes:
        levels: of the grid.
        seeds: how often each cell is measured, each time with another graph, other keys and other draws.
        graphs_with_grid: those that the whole grid is measured on; the others at the base alone.
        scale: of R-MAT: 2**scale possible persons.
        persons: of the social network.
        keys: how many keys are read.
        warm_up_seconds, cell_seconds: before a cell counts, and while it does; twice as long where β is varied.
        workers: processes of the Celery worker.
    """

    levels: Levels
    seeds: int
    graphs_with_grid: tuple[GraphKind, ...]
    scale: int
    persons: int
    keys: int
    warm_up_seconds: float
    cell_seconds: float
    workers: int


@dataclass(frozen=True, slots=True)
class TopologyOptions:
    """The options of `python -m benchmarks topology`.

    Attributes:
        quick: little of everything, in less than a minute: it shows that all works, not how anything compares.
        full: more levels of each, the grid on both graphs, longer cells: an hour and a half.
        seeds, scale, persons, keys, cell_seconds, workers: None: as is usual for that extent.
        ttls_seconds, pauses_seconds, rates, betas: levels of the grid; empty: the usual ones. Rates are of open loops.
        clients: of the closed loop.
        edge_factor: of R-MAT: edges a possible person.
        quadrants: of R-MAT: the probabilities a, b, c, d.
        neo4j_uri: one's own graph; None: an embedded one.
        redis_url: one's own Redis as the cache; None: an embedded one.
        seed: the first of the seeds.
        out: folder for what is written.
    """

    quick: bool = False
    full: bool = False
    seeds: int | None = None
    ttls_seconds: tuple[float, ...] = ()
    pauses_seconds: tuple[float, ...] = ()
    rates: tuple[float, ...] = ()
    betas: tuple[float, ...] = ()
    clients: int = DEFAULT_CLIENTS
    cell_seconds: float | None = None
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
        """How much that is."""
        usual = _QUICK if self.quick else _FULL if self.full else _USUAL
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
            self.cell_seconds or usual.cell_seconds,
            self.workers or usual.workers,
        )


def _open(*rates: float) -> tuple[Load, ...]:
    return tuple(Load(reads_per_second=rate) for rate in rates)


# TTLs are seconds where an application has minutes: a cell has to see entries expire. What decides is how often a key
# is read within δ·β, not how that compares with its TTL.
_QUICK: Final = Extent(
    Levels((BASE_TTL_SECONDS,), (BASE_PAUSE_SECONDS,), _open(400), (Skew.BY_DEGREE,), (2.0,)),
    seeds=1, graphs_with_grid=(GraphKind.RMAT,), scale=8, persons=200, keys=40,
    warm_up_seconds=0.05, cell_seconds=0.2, workers=2,
)  # fmt: skip
_USUAL: Final = Extent(
    Levels(
        (BASE_TTL_SECONDS, 6.0), (BASE_PAUSE_SECONDS, 0.0), _open(400), (Skew.BY_DEGREE, Skew.EVENLY), (0.5, 2.0)
    ),
    seeds=DEFAULT_SEEDS, graphs_with_grid=(GraphKind.RMAT,), scale=11, persons=2_000, keys=80,
    warm_up_seconds=0.1, cell_seconds=0.35, workers=8,
)  # fmt: skip
_FULL: Final = Extent(
    Levels(
        (BASE_TTL_SECONDS, 6.0, 20.0), (BASE_PAUSE_SECONDS, 0.0, 0.2), _open(200, 800),
        (Skew.BY_DEGREE, Skew.EVENLY), (0.25, 0.5, 2.0, 4.0),
    ),
    seeds=DEFAULT_SEEDS, graphs_with_grid=(GraphKind.RMAT, GraphKind.SNB), scale=11, persons=2_000, keys=80,
    warm_up_seconds=0.2, cell_seconds=2.0, workers=16,
)  # fmt: skip
