"""Driver sessions on a graph that the test run has started."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import neo4j

from refresher.checker.nodes import CREATE_NODES, REMOVE_NODES
from refresher.embedded import ArcadeDbServer
from refresher.embedded.neo4j_server import Neo4jServer


@contextmanager
def graph_session(graph: ArcadeDbServer | Neo4jServer) -> Iterator[neo4j.Session]:
    """Open a session that may write."""
    with (
        neo4j.GraphDatabase.driver(graph.bolt_uri, auth=(graph.user, graph.password)) as driver,
        driver.session(database=graph.database) as session,
    ):
        yield session


@contextmanager
def watched_nodes(graph: ArcadeDbServer | Neo4jServer, names: Sequence[str]) -> Iterator[None]:
    """Put nodes of version 0 into the graph, for as long as the block lasts."""
    with graph_session(graph) as session:
        session.run(REMOVE_NODES, names=names).consume()
        session.run(CREATE_NODES, names=names).consume()
        yield
        session.run(REMOVE_NODES, names=names).consume()


@contextmanager
def session_with_hub(graph: ArcadeDbServer | Neo4jServer) -> Iterator[neo4j.Session]:
    """Open a session that may write, on a graph whose one named item, ``hub``, has ten links."""
    with graph_session(graph) as session:
        session.run("MATCH (n:Item) DETACH DELETE n").consume()
        session.run(
            "CREATE (a:Item {name: 'hub', version: 1}) WITH a UNWIND range(1, 10) AS i CREATE (a)-[:LINK]->(:Item)"
        ).consume()
        yield session
        session.run("MATCH (n:Item) DETACH DELETE n").consume()
