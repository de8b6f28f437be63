"""The model to simulate: readers, workers, keys and their popularity, costs, and faults."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from api_client.trigger.backpressure import OVERLOADED_SECONDS
from benchmarks.simulate.options import Mode, Popularity
from refresher.demo.graph.rmat import SSCA2
from refresher.settings import TTL_JITTER


@dataclass(frozen=True, slots=True)
class Costs:
    """Times of everything besides the loads, in seconds.

    Attributes:
        claim: the time from a read's decision to its claim.
        pickup: the time from the claim to the acquire, if a worker is idle.
        overhead: the time of a run besides its load.
        turnaround: the time of a worker between two runs.
        idle_message: the time of a message without work.
    """

    claim: float = 0.001
    pickup: float = 0.003
    overhead: float = 0.003
    turnaround: float = 0.001
    idle_message: float = 0.002


DEFAULT_COSTS: Final = Costs()


@dataclass(frozen=True, slots=True)
class Fault:
    """Faults, in seconds from the start, whole ones for ``down``, ``spike``, ``flush`` and ``broker``. Default: none.

    Attributes:
        down: all workers are killed at the first time, and back at the second.
        slow, slow_times: loads that begin in between take this many times as long.
        spike, spike_times: each key is read this many times as often in between.
        flush: the time when the cache's and the queues' contents are lost.
        broker: the broker is down in between, and then has lost its messages.
    """

    down: tuple[int, int] = (1 << 40, 1 << 40)
    slow: tuple[float, float] = (math.inf, math.inf)
    slow_times: float = 1.0
    spike: tuple[float, float] = (math.inf, math.inf)
    spike_times: float = 1.0
    flush: float = math.inf
    broker: tuple[float, float] = (math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Model:
    """One simulated run; settings are the product's, with its defaults. Times in seconds.

    Attributes:
        heavy_every: the loads of every n-th key take ``heavy_times`` as long as others.
        overloaded_after: the time of a queue beyond its bound after which stale refreshes are dropped too; inf for
            never.
        weighs_loads: True if, among the remaining stale refreshes, heavy ones make way for light ones.
        writes: the writes per second of each key; a value is wrong from the first one after its load.
        noticed_after: the time from a write until the change feed has invalidated the entry; inf without a feed.
    """

    keys: int
    reads_per_second: float
    readers: int
    workers: int
    seconds: int
    ttl: float
    grace: float
    load: float
    heavy_every: int = 1
    heavy_times: float = 1.0
    beta: float = 1.0
    mode: Mode = Mode.PLAIN
    popularity: Popularity = Popularity.RMAT
    min_ttl: float = 60.0
    ttl_jitter: float = TTL_JITTER
    queue_size: int = 100
    queue_ttl: float = 60.0
    wait_timeout: float = 5.0
    lease_floor: float = 5.0
    overloaded_after: float = OVERLOADED_SECONDS
    weighs_loads: bool = True
    writes: float = 0.0
    noticed_after: float = math.inf
    costs: Costs = DEFAULT_COSTS
    fault: Fault = field(default_factory=Fault)
    seed: int = 1

    @property
    def service(self) -> float:
        """Mean time for which a refresh keeps a worker busy, in seconds."""
        return self.load * self.mean_times + self.costs.overhead

    @property
    def mean_times(self) -> float:
        """Mean time of a load over the keys, in multiples of ``load``."""
        return 1 + (self.heavy_times - 1) / self.heavy_every

    @property
    def lead(self) -> float:
        """Mean time from claim to commit if a worker is idle, in seconds."""
        return self.costs.pickup + self.service


EDGE_FACTOR: Final = 8
"""Edges per possible vertex, as in HPCS SSCA#2."""
TOP_DEGREE: Final = 10_000
_BLOCK: Final = 1 << 22


def rates_and_degrees(model: Model) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Return reads/s and degree of each key, in arrays that all callers share.

    zipf: the reads of the key of rank r are proportional to 1/r, and its node's degree falls in the same way, from
    10,000 to 1. rmat: a key is a vertex of an R-MAT graph, and is read in proportion to its degree, as hubs are.
    """
    return _drawn(model.popularity, model.keys, model.reads_per_second, model.seed)


@lru_cache(maxsize=1)
def _drawn(
    popularity: Popularity, keys: int, reads_per_second: float, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    if popularity is Popularity.ZIPF:
        weights = np.arange(1, keys + 1, dtype=np.float64) ** -1.0
        degrees = np.maximum(1, np.round(TOP_DEGREE * weights)).astype(np.int32)
    else:
        degrees = rmat_degrees(keys, seed=seed)
        weights = degrees.astype(np.float64)
    weights *= reads_per_second / weights.sum()
    return weights.astype(np.float32), degrees


def rmat_degrees(keys: int, *, seed: int) -> NDArray[np.int32]:
    """Draw the degrees of this many vertices of an R-MAT graph, without isolated ones.

    The graph itself is not drawn. An edge's source is chosen bit by bit, 0 with probability a + b and 1 with c + d. So
    a vertex with k ones among its n bits expects ``edges · (a+b)**(n−k) · (c+d)**k`` outgoing edges, and by columns as
    many incoming ones; with hundreds of millions of edges each number is Poisson. An edge that is drawn twice counts
    twice.
    """
    rng = np.random.default_rng(seed)
    scale = max(1, (keys - 1).bit_length())
    while True:
        vertices = 1 << scale
        degrees = np.concatenate(
            [_degrees(rng, first, min(first + _BLOCK, vertices), scale) for first in range(0, vertices, _BLOCK)]
        )
        touched = degrees[degrees > 0]
        if len(touched) >= keys:
            rng.shuffle(touched)
            return touched[:keys]
        scale += 1


def _degrees(rng: np.random.Generator, first: int, last: int, scale: int) -> NDArray[np.int32]:
    ones = np.bitwise_count(np.arange(first, last, dtype=np.int64)).astype(np.int64)
    by_ones = np.arange(scale + 1, dtype=np.float64)
    edges = EDGE_FACTOR * float(1 << scale)
    out_of = edges * (SSCA2.a + SSCA2.b) ** (scale - by_ones) * (SSCA2.c + SSCA2.d) ** by_ones
    into = edges * (SSCA2.a + SSCA2.c) ** (scale - by_ones) * (SSCA2.b + SSCA2.d) ** by_ones
    return rng.poisson((out_of + into)[ones]).astype(np.int32)
