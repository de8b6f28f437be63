"""Graphs of a run, one per seed side by side in one database, and the keys that are read of each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import neo4j
import numpy as np

from benchmarks.topology.plan import GraphKind, Skew
from benchmarks.topology.queries import Kind, QueryKey
from benchmarks.topology.snb import friend_graph
from refresher.demo.environment import graph_server, remove_graph
from refresher.demo.graph.rmat import Quadrants, rmat
from refresher.demo.graph.social_graph import SocialGraph, load, person_name
from refresher.graph.driver import address_of
from refresher.settings import WorkerSettings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.topology.options import TopologyOptions


@dataclass(frozen=True, slots=True)
class Subgraph:
    """One graph of the run: its persons have the ids from ``first`` on; ``degrees`` is an int64 array (persons,)."""

    first: int
    degrees: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class GraphModel:
    """All graphs of a run, as one to load, with no edge from one to another."""

    graph: SocialGraph
    subgraphs: dict[tuple[GraphKind, int], Subgraph]


def make_model(options: TopologyOptions) -> GraphModel:
    """Draw a graph of each kind for each seed.

    Raises:
        ValueError: the quadrants are no probabilities, or no R-MAT graph has so many edges at that scale.
    """
    sources, targets = [], []
    subgraphs: dict[tuple[GraphKind, int], Subgraph] = {}
    persons = 0
    for seed in range(options.seed, options.seed + options.extent.seeds):
        for kind in GraphKind:
            count, own_sources, own_targets = _draw_graph(kind, seed, options)
            degrees = np.bincount(np.concatenate([own_sources, own_targets]), minlength=count).astype(np.int64)
            subgraphs[kind, seed] = Subgraph(persons, degrees)
            sources.append(own_sources + persons)
            targets.append(own_targets + persons)
            persons += count
    # By source: loaded so, ArcadeDB takes half the time.
    keys = np.sort(np.concatenate(sources) * persons + np.concatenate(targets))
    names = [person_name(number) for number in range(persons)]
    return GraphModel(SocialGraph(names, keys // persons, keys % persons), subgraphs)


def _draw_graph(
    kind: GraphKind, seed: int, options: TopologyOptions
) -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:  # fmt: skip
    extent = options.extent
    if kind is GraphKind.RMAT:
        graph = rmat(extent.scale, options.edge_factor, seed=seed, quadrants=Quadrants(*options.quadrants))
        return graph.vertices, graph.sources, graph.targets
    network = friend_graph(extent.persons, seed=seed)
    return network.persons, network.sources, network.targets


def keys_of(subgraph: Subgraph, count: int, seed: int) -> list[QueryKey]:
    """Choose the keys that are read: persons drawn evenly among those with a friend, kinds of queries in turn.

    So the keys' degrees are distributed as the graph's, and a draw by degree is as skewed as the graph is.
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
    """Return the probability with which each key is read: float64, sum 1."""
    if skew is Skew.EVENLY:
        return np.full(len(keys), 1 / len(keys))
    degrees = np.array([key.degree for key in keys], dtype=np.float64)
    weights: NDArray[np.float64] = degrees / degrees.sum()
    return weights


@dataclass(frozen=True, slots=True)
class GraphTarget:
    """A graph that holds a world.

    Attributes:
        environ: of a worker that is to load from there; the password is in it.
        title: what it is, without a password.
    """

    environ: Mapping[str, str]
    title: str

    @property
    def database(self) -> str | None:
        """The graph's database; None is the user's home database."""
        return WorkerSettings.from_env(self.environ).neo4j_database or None

    def async_driver(self) -> neo4j.AsyncDriver:
        """Return a driver for asyncio, with as few retries as the worker's."""
        settings = WorkerSettings.from_env(self.environ)
        auth = (settings.neo4j_user, settings.neo4j_password) if settings.neo4j_password else None
        uri, tls = address_of(settings)
        return neo4j.AsyncGraphDatabase.driver(uri, auth=auth, max_transaction_retry_time=0, **tls)


@contextmanager
def graph_target(neo4j_uri: str | None, model: GraphModel) -> Iterator[GraphTarget]:
    """Start a graph, or use one's own, and load the world; from one's own it is removed in the end.

    Raises:
        EmbeddedServerError: the embedded one did not start.
        ConfigurationError, DemoError: one's own can't be used, or is not empty.
    """
    environ = dict(os.environ)
    if neo4j_uri is not None:
        environ["NEO4J_URI"] = neo4j_uri
    begun = False

    def on_progress(done: int, _: int) -> None:
        nonlocal begun
        begun = True  # from now on there is something of ours in there

    with graph_server(environ, neo4j_uri) as (driver, title):
        found = GraphTarget(environ, title)
        try:
            load(driver, found.database, model.graph, on_progress)
            yield found
        finally:
            if neo4j_uri is not None and begun:
                remove_graph(driver, found.database, model.graph.persons)
