"""Plan of a run: graphs, settings, modes, levels, and the order of the trials. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product
from typing import Final, TypeAlias


class GraphKind(StrEnum):
    """Kind of graph: one of hubs and leaves, or one with the degrees of a social network."""

    RMAT = "rmat"
    SNB = "snb"


TITLES: Final = {GraphKind.RMAT: "R-MAT: hubs and leaves", GraphKind.SNB: "social network, LDBC's degrees"}


class Setting(StrEnum):
    """Place of refreshes: the reader's own process, without grace, or workers, with grace."""

    OWN_PROCESS = "own process"
    WORKERS = "workers"


class Mode(StrEnum):
    """Policy of early refreshes; the latter two are those of TSPR_REFRESH_MODE."""

    NO_EARLY = "no early"
    PLAIN = "plain"
    TOPOLOGY = "topology"


class Skew(StrEnum):
    """Distribution of reads over keys: in proportion to their person's degree, or even."""

    BY_DEGREE = "by degree"
    EVENLY = "evenly"


CLIENTS: Final = 2
"""Number of readers of a closed loop. Two read some hundred times a second, like the harness of the first setting (255
to 305); eight read thousands of times, so often that a plain β protects nearly every key."""


@dataclass(frozen=True, slots=True)
class Point:
    """One point of the grid.

    Attributes:
        pause_seconds: the pause added to every load of the graph; with 0, δ is the query's own time.
        rate: the reads per second of an open loop, which begin when they are due; 0 for a closed loop, whose clients
            read again after each answer.
    """

    graph: GraphKind
    ttl_seconds: float
    pause_seconds: float
    rate: float
    skew: Skew

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """The point's cells in a table, whose title has the graph."""
        return f"{self.ttl_seconds:g}", f"{self.pause_seconds * 1000:g}", self.load, self.skew.value

    @property
    def load(self) -> str:
        return f"{self.rate:g} reads/s" if self.rate else f"{CLIENTS} clients"

    def __str__(self) -> str:
        pause = f"an added pause of {self.pause_seconds * 1000:g} ms" if self.pause_seconds else "no added pause"
        return f"TTL {self.ttl_seconds:g} s, {pause}, {self.load}, keys drawn {self.skew}"


BASE_BETA: Final = 1.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """Candidate at a point: a setting, a mode and its β0."""

    setting: Setting
    mode: Mode
    beta0: float = BASE_BETA


@dataclass(frozen=True, slots=True)
class Trial:
    """One measurement; ``seed`` determines the graph, the keys and the draws."""

    point: Point
    candidate: Candidate
    seed: int

    @property
    def variant(self) -> Variant:
        point, candidate = self.point, self.candidate
        return point.ttl_seconds, point.pause_seconds, candidate.mode, candidate.beta0


Variant: TypeAlias = tuple[float, float, Mode, float]
"""Parameters of a worker in a trial: TTL (s), pause (s), mode, β0."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Amount of measuring. The grid combines all levels; the first of each form the base.

    Attributes:
        ttls_seconds, pauses_seconds, rates, skews: the levels of the grid; a closed loop, then open ones.
        betas: further β0 to try at the base.
        seeds: the number of measurements of each trial, each time with another graph, other keys and other draws.
        graphs_with_grid: the graphs on which the whole grid is measured; others are measured only at the base.
        scale: the scale of R-MAT, for 2**scale possible persons.
        persons: the number of persons of the social network.
        keys: the number of keys to read.
        warm_up_seconds, trial_seconds: the time before a trial counts, and while it does; twice as long where β is
            varied.
        workers: the number of processes of the Celery worker.
    """

    ttls_seconds: tuple[float, ...]
    pauses_seconds: tuple[float, ...]
    rates: tuple[float, ...]
    skews: tuple[Skew, ...]
    betas: tuple[float, ...]
    seeds: int
    graphs_with_grid: tuple[GraphKind, ...]
    scale: int
    persons: int
    keys: int
    warm_up_seconds: float
    trial_seconds: float
    workers: int

    def base(self, graph: GraphKind) -> Point:
        """Return the point at which graphs are compared, with the first of all levels."""
        return Point(graph, self.ttls_seconds[0], self.pauses_seconds[0], self.rates[0], self.skews[0])

    def beta_point(self, graph: GraphKind) -> Point:
        """Return the point at which β is varied, which is the base with an open loop.

        There the number of reads does not depend on their duration, so that recomputes can be compared.
        """
        return replace(self.base(graph), rate=self.rates[-1])

    def points(self, graph: GraphKind) -> list[Point]:
        """Return a graph's points: the grid, or only the base."""
        if graph not in self.graphs_with_grid:
            return [self.base(graph)]
        return [Point(graph, *axis) for axis in product(self.ttls_seconds, self.pauses_seconds, self.rates, self.skews)]

    def trials(self, first_seed: int) -> Iterator[Trial]:
        """Yield all trials, seed by seed, with each seed's points in random order.

        The candidates of a point follow each other directly, also in random order, so that they meet the same
        conditions.
        """
        usual = [Candidate(*one) for one in product(Setting, Mode)]
        early = (Mode.PLAIN, Mode.TOPOLOGY)
        other_betas = [Candidate(*one) for one in product(Setting, early, self.betas) if one[-1] != BASE_BETA]
        with_betas = {self.beta_point(graph) for graph in self.graphs_with_grid}
        for seed in range(first_seed, first_seed + self.seeds):
            order = random.Random(seed)  # noqa: S311 - no secret
            drawn = [point for graph in GraphKind for point in self.points(graph)]
            order.shuffle(drawn)
            for point in drawn:
                who = usual + other_betas if point in with_betas else list(usual)
                order.shuffle(who)
                yield from (Trial(point, candidate, seed) for candidate in who)

    def variants(self) -> list[Variant]:
        """Return the variants that occur, each once, in the order of the worker's list."""
        return sorted({trial.variant for trial in self.trials(0)})


# TTLs are seconds where an application has minutes, since a trial has to see entries expire. What matters is how often
# a key is read within δ·β, not how that compares with its TTL.
BASE_PAUSE_SECONDS: Final = 0.05
USUAL: Final = Extent(
    ttls_seconds=(2.0, 6.0), pauses_seconds=(BASE_PAUSE_SECONDS, 0.0), rates=(0.0, 400.0),
    skews=(Skew.BY_DEGREE, Skew.EVENLY), betas=(0.25, 0.5, 2.0, 4.0, 8.0),
    seeds=5, graphs_with_grid=(GraphKind.RMAT,), scale=11, persons=2_000, keys=80,
    warm_up_seconds=0.1, trial_seconds=0.35, workers=8,
)  # fmt: skip
QUICK: Final = replace(
    USUAL,
    ttls_seconds=(2.0,), pauses_seconds=(BASE_PAUSE_SECONDS,), skews=(Skew.BY_DEGREE,), betas=(2.0,), seeds=1,
    scale=8, persons=200, keys=40, warm_up_seconds=0.05, trial_seconds=0.2, workers=2,
)  # fmt: skip
