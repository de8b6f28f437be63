"""The graph of a run: an embedded one, or one's own, with the world in it, and what tells everyone where it is."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import neo4j

from refresher.demo.environment import graph_server, remove_graph
from refresher.demo.graph.social_graph import load
from refresher.graph.driver import address_of
from refresher.settings import WorkerSettings

if TYPE_CHECKING:
    from benchmarks.topology.world import World


@dataclass(frozen=True, slots=True)
class GraphPlace:
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
def graph_place(neo4j_uri: str | None, world: World) -> Iterator[GraphPlace]:
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
        found = GraphPlace(environ, title)
        try:
            load(driver, found.database, world.graph, on_progress)
            yield found
        finally:
            if neo4j_uri is not None and begun:
                remove_graph(driver, found.database, world.graph.persons)
