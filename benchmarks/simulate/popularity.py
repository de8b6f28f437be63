"""How reads are shared among keys, and the degree of each key's node."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.simulate.options import Popularity
from refresher.demo.graph.rmat import SSCA2

EDGE_FACTOR: Final = 8
"""As HPCS SSCA#2 has it: edges a possible vertex."""
TOP_DEGREE: Final = 10_000
_BLOCK: Final = 1 << 22


@lru_cache(maxsize=1)
def rates_and_degrees(
    popularity: Popularity, keys: int, reads_per_second: float, *, zipf_exponent: float, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Return reads/s and degree of each key; not to be written to, since the next one who asks gets the same.

    zipf: the key of rank r gets r**-exponent of the reads, and its node's degree falls in the same way, from 10,000
    to 1. rmat: a key is a vertex of an R-MAT graph, and is read in proportion to its degree, as hubs are.
    """
    if popularity is Popularity.ZIPF:
        weights = np.arange(1, keys + 1, dtype=np.float64) ** -zipf_exponent
        degrees = np.maximum(1, np.round(TOP_DEGREE * weights)).astype(np.int32)
    else:
        degrees = rmat_degrees(keys, seed=seed)
        weights = degrees.astype(np.float64)
    weights *= reads_per_second / weights.sum()
    return weights.astype(np.float32), degrees


def rmat_degrees(keys: int, *, seed: int) -> NDArray[np.int32]:
    """Draw the degrees of this many vertices of an R-MAT graph, isolated ones left out.

    The graph itself is not drawn. An edge's source is chosen bit by bit: 0 with the probability a + b, 1 with c + d.
    So a vertex with k ones among its n bits expects ``edges · (a+b)**(n−k) · (c+d)**k`` outgoing edges, and as many
    incoming ones in columns: with hundreds of millions of edges each number is Poisson. An edge that comes
    up twice counts twice.
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
