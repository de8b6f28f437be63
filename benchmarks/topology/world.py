"""The graphs of a run, one for each seed, side by side in one database; and the keys that are read of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.topology.asked import Asked, Kind
from benchmarks.topology.levels import GraphKind, Skew
from benchmarks.topology.snb import friend_graph
from refresher.demo.graph.rmat import Quadrants, rmat
from refresher.demo.graph.social_graph import SocialGraph, person_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.topology.options import TopologyOptions


@dataclass(frozen=True, slots=True)
class Part:
    """One graph of the run: its persons have the ids from ``first`` on; ``degrees`` is an int64 array (persons,)."""

    first: int
    degrees: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class World:
    """All graphs of a run, as one to load, with no edge from one to another."""

    graph: SocialGraph
    parts: dict[tuple[GraphKind, int], Part]


def made_world(options: TopologyOptions) -> World:
    """Draw a graph of each kind for each seed.

    Raises:
        ValueError: the quadrants are no probabilities, or no R-MAT graph has so many edges at that scale.
    """
    sources, targets = [], []
    parts: dict[tuple[GraphKind, int], Part] = {}
    persons = 0
    for seed in range(options.seed, options.seed + options.extent.seeds):
        for kind in GraphKind:
            count, own_sources, own_targets = _drawn(kind, seed, options)
            degrees = np.bincount(np.concatenate([own_sources, own_targets]), minlength=count).astype(np.int64)
            parts[kind, seed] = Part(persons, degrees)
            sources.append(own_sources + persons)
            targets.append(own_targets + persons)
            persons += count
    # By source: loaded so, ArcadeDB takes half the time.
    keys = np.sort(np.concatenate(sources) * persons + np.concatenate(targets))
    names = [person_name(number) for number in range(persons)]
    return World(SocialGraph(names, keys // persons, keys % persons), parts)


def _drawn(
    kind: GraphKind, seed: int, options: TopologyOptions
) -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:  # fmt: skip
    extent = options.extent
    if kind is GraphKind.RMAT:
        graph = rmat(extent.scale, options.edge_factor, seed=seed, quadrants=Quadrants(*options.quadrants))
        return graph.vertices, graph.sources, graph.targets
    network = friend_graph(extent.persons, seed=seed)
    return network.persons, network.sources, network.targets


def keys_of(part: Part, count: int, seed: int) -> list[Asked]:
    """Choose the keys that are read: persons drawn evenly among those with a friend, kinds of queries in turn.

    So the keys' degrees are distributed as the graph's, and a draw by degree is as skewed as the graph is.
    """
    rng = np.random.default_rng([seed, 1])
    known = np.flatnonzero(part.degrees)
    persons = rng.choice(known, size=min(count, len(known)), replace=False)
    others = rng.choice(known, size=len(persons))
    kinds = list(Kind)
    return [
        _asked(kinds[number % len(kinds)], part, int(person), int(other), known)
        for number, (person, other) in enumerate(zip(persons, others, strict=True))
    ]


def _asked(kind: Kind, part: Part, person: int, other: int, known: NDArray[np.int64]) -> Asked:
    params = {"person_id": part.first + person}
    if kind is Kind.SHORTEST_PATH:
        if other == person:  # Neo4j refuses to look for a path from a node to itself
            other = int(known[0] if known[0] != person else known[-1])
        params["other_id"] = part.first + other
    return Asked(kind, params, int(part.degrees[person]))


def shares(keys: list[Asked], skew: Skew) -> NDArray[np.float64]:
    """Return the probability with which each key is read: float64, sum 1."""
    if skew is Skew.EVENLY:
        return np.full(len(keys), 1 / len(keys))
    degrees = np.array([key.degree for key in keys], dtype=np.float64)
    weights: NDArray[np.float64] = degrees / degrees.sum()
    return weights
