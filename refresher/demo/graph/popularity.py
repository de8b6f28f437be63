"""Popularity of the demo's keys: skewed, as in real traffic.

A bounded set of hot keys (a query and its params) is chosen once: persons with a probability that grows with their
degree, and within each query the k-th by degree is read in proportion to 1 / k**exponent (Zipf; L. Breslau et
al., "Web Caching and Zipf-like Distributions", INFOCOM 1999, found exponents of 0.64 to 0.83 for pages).
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from refresher.demo.graph.social_graph import SocialGraph

DEFAULT_KEYS: Final = 200
"""As many as one worker keeps fresh beside the readers on two cores: about 45 refreshes/s at the demo's TTLs."""

SHARES: Final = {"profile": 0.35, "friends_of_friends": 0.35, "recommend": 0.2, "shortest_path": 0.1}
"""Share of each query, both of the hot keys and of the reads. Together 1."""

_BLOCK = 65_536


class Popularity:
    """Draws keys; the same graph, seed and numbers give the same draws. Not thread-safe.

    ``reader_seed`` lets many readers draw differently from the one set of hot keys that ``seed`` chooses.

    Raises:
        ValueError: ``keys`` is under 4 (one a query), ``exponent`` is negative, or the graph has fewer than 2 persons.
    """

    def __init__(
        self,
        graph: SocialGraph,
        seed: int,
        *,
        keys: int = DEFAULT_KEYS,
        exponent: float = 0.8,
        reader_seed: int = 0,
    ) -> None:
        if keys < len(SHARES):
            raise ValueError(f"keys must be at least {len(SHARES)}, one for each query, got {keys}")
        if exponent < 0:
            raise ValueError(f"exponent must be >= 0, got {exponent}")
        if graph.persons < 2:
            raise ValueError("a graph of at least 2 persons is needed")
        self._keys, self._weights = _hot_keys(graph, np.random.default_rng(seed), keys, exponent)
        self._cumulated = np.cumsum(self._weights)
        self._rng = np.random.default_rng([seed, reader_seed])
        # Drawn in blocks: one draw by numpy costs microseconds, one of a block of them nanoseconds.
        self._indices: Iterator[int] = chain.from_iterable(iter(self._draw_block, None))

    @property
    def keys(self) -> list[tuple[str, dict[str, object]]]:
        """The hot keys as (query, params): distinct, at most ``keys``, fewer on a small graph."""
        return [(query, dict(params)) for query, params in self._keys]

    @property
    def weights(self) -> NDArray[np.float64]:
        """The probability of each of `keys`: float64 of the same length, sum 1."""
        return self._weights.copy()

    def draw(self) -> tuple[str, dict[str, object]]:
        """Draw the next (query, params). The params are the caller's own copy."""
        query, params = self._keys[next(self._indices)]
        return query, params.copy()

    def _draw_block(self) -> list[int]:
        drawn = np.searchsorted(self._cumulated, self._rng.random(_BLOCK), side="right")
        # Rounding may leave the last sum a hair under 1.
        indices: list[int] = np.minimum(drawn, len(self._keys) - 1).tolist()
        return indices


def _hot_keys(
    graph: SocialGraph, rng: np.random.Generator, keys: int, exponent: float
) -> tuple[list[tuple[str, dict[str, object]]], NDArray[np.float64]]:
    """Choose the hot keys and their probabilities, query by query."""
    chosen: list[tuple[str, dict[str, object]]] = []
    weights: list[NDArray[np.float64]] = []
    for query, share in SHARES.items():
        persons = _hot_persons(graph, rng, max(1, int(keys * share)))
        chosen.extend((query, _params(query, graph, rng, person)) for person in persons)
        zipf = np.arange(1, len(persons) + 1, dtype=np.float64) ** -exponent
        weights.append(share * zipf / zipf.sum())
    return chosen, np.concatenate(weights)


def _hot_persons(graph: SocialGraph, rng: np.random.Generator, wanted: int) -> list[int]:
    """Draw distinct persons by their degree, the highest degree first: at most ``wanted``.

    Not simply the highest ones: these are the dearest to query, and the demo's one worker has to keep up.
    """
    degrees = graph.degrees
    count = min(wanted, int(np.count_nonzero(degrees)))
    drawn = rng.choice(graph.persons, size=count, replace=False, p=degrees / degrees.sum())
    highest_first: list[int] = drawn[np.argsort(-degrees[drawn], kind="stable")].tolist()
    return highest_first


def _params(query: str, graph: SocialGraph, rng: np.random.Generator, person: int) -> dict[str, object]:
    """Return the params of one key; a path leads to some other person."""
    if query != "shortest_path":
        return {"name": graph.names[person]}
    other = (person + int(rng.integers(1, graph.persons))) % graph.persons
    return {"source": graph.names[person], "target": graph.names[other]}
