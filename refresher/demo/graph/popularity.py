"""Popularity of the demo's keys: skewed, as in real traffic.

A bounded set of hot keys (a query and its params) is chosen once: persons with a probability that grows with their
degree, and within each query the k-th by degree is read in proportion to 1 / k**exponent (Zipf; L. Breslau et
al., "Web Caching and Zipf-like Distributions", INFOCOM 1999, found exponents of 0.64 to 0.83 for pages).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from refresher.demo.graph.social_graph import SocialGraph

KEYS: Final = 200
"""Number of keys that one worker keeps fresh beside the readers on two cores: 45 refreshes/s at the demo's TTLs."""

SHARES: Final = {"profile": 0.35, "friends_of_friends": 0.35, "recommend": 0.2, "shortest_path": 0.1}
"""Share of each query in both the hot keys and the reads; the sum is 1."""

EXPONENT: Final = 0.8


def hot_keys(graph: SocialGraph, seed: int) -> tuple[list[tuple[str, dict[str, object]]], list[float]]:
    """Choose the hot keys, at most `KEYS` (fewer on a small graph), and the probability of each, which sum to 1.

    The same graph and seed give the same keys: distinct (query, params).
    """
    rng = np.random.default_rng(seed)
    chosen: list[tuple[str, dict[str, object]]] = []
    weights: list[float] = []
    for query, share in SHARES.items():
        persons = _hot_persons(graph, rng, max(1, int(KEYS * share)))
        chosen.extend((query, _params(query, graph, rng, person)) for person in persons)
        zipf = np.arange(1, len(persons) + 1, dtype=np.float64) ** -EXPONENT
        weights.extend((share * zipf / zipf.sum()).tolist())
    return chosen, weights


def _hot_persons(graph: SocialGraph, rng: np.random.Generator, wanted: int) -> list[int]:
    """Draw at most ``wanted`` distinct persons by their degree; return them with the highest degree first.

    Not simply those with the highest degrees, which are the most expensive to query for the demo's single worker.
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
