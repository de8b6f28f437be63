"""Loaders that write: refused alike by Neo4j, which gives them a transaction for reading, and by other graphs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from refresher.embedded import ArcadeDbServer
from refresher.embedded.neo4j_server import Neo4jServer
from refresher.errors import LoadFailed
from refresher.graph.loader import Graph
from refresher.queries import Registry, query
from refresher.settings import WorkerSettings
from tests.support.graph_session import graph_session

Server = ArcadeDbServer | Neo4jServer


@pytest.fixture(params=["arcadedb", "neo4j_server"])
def server(request: pytest.FixtureRequest) -> Server:
    started = request.getfixturevalue(request.param)
    assert isinstance(started, ArcadeDbServer | Neo4jServer)
    return started


def loaded(server: Server, loader: Callable[[Any], Any], **options: Any) -> Any:
    queries = Registry()
    query("q", ttl="5m", grace="1h", into=queries, **options)(loader)
    settings = WorkerSettings(
        neo4j_uri=server.bolt_uri, neo4j_user=server.user, neo4j_password=server.password,
        neo4j_database=server.database,
    )  # fmt: skip
    registered = queries.find("q", 1)
    assert registered is not None
    with closing(Graph(settings)) as graph:
        (one,) = graph.load(registered, [{}], [None], (), 20.0)
    return one.value


def written(server: Server) -> int:
    with graph_session(server) as session:
        return int(session.run("MATCH (n:WrittenByALoader) RETURN count(n) AS n").single(strict=True)["n"])


def creates(tx: Any) -> Any:
    return tx.run("CREATE (n:WrittenByALoader) RETURN count(n) AS n").single()["n"]


def creates_and_leaves_the_rows(tx: Any) -> int:
    tx.run("UNWIND range(1, 3000) AS x CREATE (n:WrittenByALoader {x: x}) RETURN n")
    return 1


def reads_after(tx: Any) -> int:
    tx.run("MERGE (n:WrittenByALoader)").consume()
    return int(tx.run("MATCH (n:WrittenByALoader) RETURN count(n) AS n").single()["n"])


@pytest.mark.parametrize("loader", [creates, creates_and_leaves_the_rows, reads_after])
def test_a_loader_that_writes_fails_and_nothing_is_written(server: Server, loader: Callable[[Any], Any]) -> None:
    with pytest.raises(LoadFailed, match="the loader writes to the graph, and a load only reads") as caught:
        loaded(server, loader)
    assert (caught.value.kind, caught.value.is_transient) == ("writes", False)
    assert written(server) == 0


def test_a_degree_that_writes_is_refused_too(server: Server) -> None:
    with pytest.raises(LoadFailed) as caught:
        loaded(server, lambda tx: 1, degree="CREATE (n:WrittenByALoader) RETURN 1")
    assert caught.value.kind == "writes"
    assert written(server) == 0


def test_a_loader_that_leaves_rows_unread_is_no_writer(server: Server) -> None:
    assert loaded(server, lambda tx: tx.run("UNWIND range(1, 3000) AS x RETURN x").peek()["x"]) == 1
