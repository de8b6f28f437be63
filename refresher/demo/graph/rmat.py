"""R-MAT: a random graph with the skew of real ones, in numpy.

An edge is dropped into the adjacency matrix by choosing, `scale` times, one of the four quadrants with the
probabilities a, b, c, d. Unequal quadrants give a heavy-tailed degree distribution: a few hubs, many leaves.

Sources: D. Chakrabarti, Y. Zhan, C. Faloutsos, "R-MAT: A Recursive Model for Graph Mining", SIAM SDM 2004; the
quadrants are those of the benchmark HPCS SSCA#2 (a = 0.55, b = c = 0.1, d = 0.25).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_SCALE: Final = 30
"""Two vertex ids of 30 bits fit into a 64-bit key with room to spare, on which the removal of duplicates relies."""

_MAX_ROUNDS = 64
_MIN_DRAWS = 1_024


class Quadrants(NamedTuple):
    """Probabilities of the four quadrants, with sum 1."""

    a: float
    b: float
    c: float
    d: float


SSCA2: Final = Quadrants(0.55, 0.1, 0.1, 0.25)


@dataclass(frozen=True, slots=True)
class RmatGraph:
    """A directed graph without self loops, duplicates or isolated vertices.

    ``vertices`` is the number of vertices; ``sources`` and ``targets`` are int64 arrays of one shape, (edges,), with
    ids from 0 to vertices - 1, and every id occurs.
    """

    vertices: int
    sources: NDArray[np.int64]
    targets: NDArray[np.int64]

    @property
    def edges(self) -> int:
        """Number of distinct edges."""
        return len(self.sources)


def rmat(scale: int, edge_factor: float, *, seed: int) -> RmatGraph:
    """Draw a graph of exactly ``round(edge_factor * 2**scale)`` distinct edges among 2**scale possible vertices.

    Self loops and duplicates are drawn again, vertices without edges are dropped (so ``vertices`` is at most 2**scale:
    93 % of it at scale 15 and an edge factor of 6), and ids are permuted, so that an id tells nothing about a degree.
    The same arguments give the same graph.

    Raises:
        ValueError: ``scale`` is not in 1..30, or this scale does not yield so many distinct edges.
    """
    if not 1 <= scale <= MAX_SCALE:
        raise ValueError(f"scale must be from 1 to {MAX_SCALE}, got {scale}")
    wanted = round(edge_factor * 2**scale)
    if wanted < 1:
        raise ValueError(f"edge_factor must give at least one edge, got {edge_factor} at scale {scale}")
    rng = np.random.default_rng(seed)
    keys = _distinct_keys(rng, scale, wanted)
    return _compacted(rng, keys >> scale, keys & (2**scale - 1))


def rmat_with_at_least(vertices: int, edges: int, *, seed: int) -> RmatGraph:
    """Draw a graph of exactly ``edges`` distinct edges that touch at least ``vertices`` vertices.

    It takes the smallest possible scale, since a greater one only thins out the graph.

    Raises:
        ValueError: a number is not positive, there are fewer edges than vertices, or no scale gives both numbers.
    """
    if vertices < 2 or edges < vertices:
        raise ValueError(f"need at least 2 vertices and as many edges as vertices, got {vertices} and {edges}")
    for scale in range((vertices - 1).bit_length(), MAX_SCALE + 1):
        try:
            graph = rmat(scale, edges / 2**scale, seed=seed)
        except ValueError:
            continue  # too dense for this scale; the next one has four times the room
        if graph.vertices >= vertices:
            return graph
    raise ValueError(f"no R-MAT graph of scale <= {MAX_SCALE} has {vertices} vertices and {edges} edges")


def _distinct_keys(rng: np.random.Generator, scale: int, wanted: int) -> NDArray[np.int64]:
    """Draw ``wanted`` distinct edges, as an int64 array (wanted,) of ``source << scale | target``.

    The first ones in the order of drawing are kept, since cutting a sorted array would cut off a corner of the graph.
    """
    kept: NDArray[np.int64] = np.empty(0, dtype=np.int64)
    for _ in range(_MAX_ROUNDS):
        drawn = _draw_keys(rng, scale, max(wanted - len(kept), _MIN_DRAWS))
        together = np.concatenate([kept, drawn])
        first_seen = np.sort(np.unique(together, return_index=True)[1])
        kept = together[first_seen]
        if len(kept) >= wanted:
            return kept[:wanted]
    raise ValueError(f"{wanted} distinct edges don't come up at scale {scale}: take a greater scale or fewer edges")


def _draw_keys(rng: np.random.Generator, scale: int, draws: int) -> NDArray[np.int64]:
    """Draw edges without self loops, as an int64 array of at most ``draws`` keys, perhaps with duplicates."""
    sources = np.zeros(draws, dtype=np.int64)
    targets = np.zeros(draws, dtype=np.int64)
    until_b = SSCA2.a + SSCA2.b
    until_c = until_b + SSCA2.c
    for _ in range(scale):
        draw = rng.random(draws)
        below = draw >= until_b  # c or d: the lower half, a greater source
        right = ((draw >= SSCA2.a) & ~below) | (draw >= until_c)  # b or d: the right half, a greater target
        sources = sources << 1 | below
        targets = targets << 1 | right
    no_loop = sources != targets
    keys: NDArray[np.int64] = sources[no_loop] << scale | targets[no_loop]
    return keys


def _compacted(rng: np.random.Generator, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> RmatGraph:
    """Renumber the vertices that have edges from 0 on, in random order."""
    touched, compact = np.unique(np.concatenate([sources, targets]), return_inverse=True)
    renumbered = rng.permutation(len(touched)).astype(np.int64)[compact]
    return RmatGraph(len(touched), renumbered[: len(sources)], renumbered[len(sources) :])
