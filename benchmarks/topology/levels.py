"""What is compared: graphs, settings, modes, and the levels of the grid."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class GraphKind(StrEnum):
    """Which graph: one of hubs and leaves, or one whose degrees are those of a social network."""

    RMAT = "rmat"
    SNB = "snb"


class Setting(StrEnum):
    """Who refreshes: the reader's own process, without grace, or workers, with grace."""

    OWN_PROCESS = "own process"
    WORKERS = "workers"


class Mode(StrEnum):
    """When a value is refreshed; the latter two are those of TSPR_REFRESH_MODE."""

    NO_EARLY = "no early"
    PLAIN = "plain"
    TOPOLOGY = "topology"


class Skew(StrEnum):
    """How keys are drawn: in proportion to their person's degree, or all alike."""

    BY_DEGREE = "by degree"
    EVENLY = "evenly"


@dataclass(frozen=True, slots=True)
class Load:
    """How reads come.

    Attributes:
        clients: of a closed loop, each of which reads again when it has its answer; 0: an open loop.
        reads_per_second: of an open loop: reads begin when they are due, however long others take.
    """

    clients: int = 0
    reads_per_second: float = 0.0

    def __str__(self) -> str:
        return f"{self.clients} clients" if self.clients else f"{self.reads_per_second:g} reads/s"


@dataclass(frozen=True, slots=True)
class Point:
    """One point of the grid.

    Attributes:
        graph: which.
        ttl_seconds: of every entry.
        pause_seconds: added to every load of the graph; 0: δ is what the query takes.
        load: how reads come.
        skew: how keys are drawn.
    """

    graph: GraphKind
    ttl_seconds: float
    pause_seconds: float
    load: Load
    skew: Skew


@dataclass(frozen=True, slots=True)
class Contestant:
    """Who is measured at a point: a setting, a mode and its β0."""

    setting: Setting
    mode: Mode
    beta0: float = 1.0


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement; ``seed`` is of the graph, of the keys and of what is drawn."""

    point: Point
    contestant: Contestant
    seed: int
