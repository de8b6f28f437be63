"""Graphs of a run, one per seed side by side in one database, and the keys that are read in each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.apparatus.graph import GraphTarget, running_graph
from benchmarks.topology.plan import Extent, GraphKind, Skew
from benchmarks.topology.queries import Kind, QueryKey
from benchmarks.topology.snb import friend_graph
from refresher.demo.graph.rmat import rmat
from refresher.demo.graph.social_graph import SocialGraph, load, person_name

EDGE_FACTOR: Final = 8.0
"""Edges per possible person in R-MAT graphs."""


@dataclass(frozen=True, slots=True)
class Subgraph:
    """One graph of the run, whose persons have ids from ``first`` on; ``degrees`` is an int64 array (persons,)."""

    first: int
    degrees: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class GraphModel:
    """All graphs of a run, as one to load, without edges between them."""

    graph: SocialGraph
    subgraphs: dict[tuple[GraphKind, int], Subgraph]


def make_model(extent: Extent, first_seed: int) -> GraphModel:
    """Draw a graph of each kind for each seed."""
    sources, targets = [], []
    subgraphs: dict[tuple[GraphKind, int], Subgraph] = {}
    persons = 0
    for seed in range(first_seed, first_seed + extent.seeds):
        for kind in GraphKind:
            count, own_sources, own_targets = _draw_graph(kind, seed, extent)
            degrees = np.bincount(np.concatenate([own_sources, own_targets]), minlength=count).astype(np.int64)
            subgraphs[kind, seed] = Subgraph(persons, degrees)
            sources.append(own_sources + persons)
            targets.append(own_targets + persons)
            persons += count
    # Sorted by source, so that ArcadeDB loads them in half the time.
    keys = np.sort(np.concatenate(sources) * persons + np.concatenate(targets))
    names = [person_name(number) for number in range(persons)]
    return GraphModel(SocialGraph(names, keys // persons, keys % persons), subgraphs)


def _draw_graph(kind: GraphKind, seed: int, extent: Extent) -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:
    if kind is GraphKind.RMAT:
        graph = rmat(extent.scale, EDGE_FACTOR, seed=seed)
        return graph.vertices, graph.sources, graph.targets
    return extent.persons, *friend_graph(extent.persons, seed=seed)


def keys_of(subgraph: Subgraph, count: int, seed: int) -> list[QueryKey]:
    """Choose the keys to read: persons drawn evenly among those with a friend, with kinds of queries in turn.

    So the keys' degrees are distributed like the graph's, and a draw by degree is as skewed as the graph.
    """
    rng = np.random.default_rng([seed, 1])
    known = np.flatnonzero(subgraph.degrees)
    persons = rng.choice(known, size=min(count, len(known)), replace=False)
    others = rng.choice(known, size=len(persons))
    kinds = list(Kind)
    return [
        _query_key(kinds[number % len(kinds)], subgraph, int(person), int(other), known)
        for number, (person, other) in enumerate(zip(persons, others, strict=True))
    ]


def _query_key(kind: Kind, subgraph: Subgraph, person: int, other: int, known: NDArray[np.int64]) -> QueryKey:
    params = {"person_id": subgraph.first + person}
    if kind is Kind.SHORTEST_PATH:
        if other == person:  # Neo4j refuses to look for a path from a node to itself
            other = int(known[0] if known[0] != person else known[-1])
        params["other_id"] = subgraph.first + other
    return QueryKey(kind, params, int(subgraph.degrees[person]))


def shares(keys: list[QueryKey], skew: Skew) -> NDArray[np.float64]:
    """Return the probability of each key to be read, as float64 with sum 1."""
    weights = np.array([1.0 if skew is Skew.EVENLY else key.degree for key in keys], dtype=np.float64)
    return np.asarray(weights / weights.sum())


@contextmanager
def loaded_graph(graph: SocialGraph) -> Iterator[GraphTarget]:
    """Start a graph, and load the persons."""
    with running_graph() as (driver, target):
        load(driver, target.database, graph)
        yield target
