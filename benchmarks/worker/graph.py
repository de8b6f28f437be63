"""The graph that is read: an embedded one, or one's own, with a few hundred persons that are gone in the end."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

import neo4j
from neo4j.exceptions import DriverError, Neo4jError

from api_client.config.environment import without_password
from benchmarks.errors import BenchError
from refresher.embedded import ArcadeDbServer
from refresher.graph.driver import open_driver
from refresher.settings import WorkerSettings

PERSONS: Final = 200
_FRIENDS_EACH: Final = 10
_CREATE: Final = """
UNWIND range(0, $persons - 1) AS number
CREATE (:BenchPerson {id: number, name: 'Person no ' + toString(number)})
"""
_JOIN: Final = """
UNWIND range(1, $friends) AS step
MATCH (a:BenchPerson)
MATCH (b:BenchPerson {id: (a.id + step) % $persons})
CREATE (a)-[:KNOWS]->(b)
"""
_COUNT: Final = "MATCH (p:BenchPerson) RETURN count(p) AS persons"
_REMOVE: Final = "MATCH (p:BenchPerson) DETACH DELETE p"


@dataclass(frozen=True, slots=True)
class GraphPlace:
    """Where the worker's loads go. ``environ`` is what its environment says of it; ``title`` names the server."""

    environ: Mapping[str, str]
    title: str


@contextmanager
def graph_place(neo4j_uri: str | None) -> Iterator[GraphPlace]:
    """Start a graph and load it; in the end nothing of that is left in one's own.

    Args:
        neo4j_uri: one's own, NEO4J_USER, NEO4J_PASSWORD and NEO4J_DATABASE in the environment; None: an embedded one.

    Raises:
        EmbeddedServerError, ConfigurationError: it did not start, or can't be used.
        BenchError: one's own refused, or holds such persons already.
    """
    # Neo4j warns of a label that is not there yet.
    logging.getLogger("neo4j.notifications").setLevel(logging.ERROR)
    with ExitStack() as stack:
        environ = _environ(neo4j_uri, stack)
        settings = WorkerSettings.from_env({**os.environ, **environ})
        driver = stack.enter_context(open_driver(settings, settings.neo4j_user, settings.neo4j_password))
        session = stack.enter_context(driver.session(database=settings.neo4j_database or None))
        try:
            title = _title(driver, neo4j_uri)
            if session.run(_COUNT).single(strict=True)["persons"]:
                raise BenchError("the graph holds BenchPerson nodes already: remove them, or use another one")
            stack.callback(lambda: session.run(_REMOVE).consume())
            session.run(_CREATE, persons=PERSONS).consume()
            session.run(_JOIN, persons=PERSONS, friends=_FRIENDS_EACH).consume()
        except (DriverError, Neo4jError, OSError) as error:
            raise BenchError(f"the graph can't be used: {str(error).splitlines()[0]}") from error
        yield GraphPlace(environ, title)


def _environ(neo4j_uri: str | None, stack: ExitStack) -> dict[str, str]:
    if neo4j_uri is not None:
        return {"NEO4J_URI": neo4j_uri}
    return stack.enter_context(ArcadeDbServer.start()).environ


def _title(driver: neo4j.Driver, neo4j_uri: str | None) -> str:
    agent = driver.get_server_info().agent
    return f"embedded, {agent}" if neo4j_uri is None else f"{agent} at {without_password(neo4j_uri)}"
