"""Graphs without APOC: one error that says so."""

from __future__ import annotations

import neo4j
import pytest

from refresher.embedded import ArcadeDbServer
from refresher.embedded.neo4j_server import Neo4jServer
from refresher.feed.errors import FeedError
from refresher.feed.triggers import Triggers
from refresher.feed.watches import Watches

PEOPLE = Watches({"Person": "id"})


@pytest.mark.parametrize(
    ("graph", "words"),
    [("neo4j_server", r"^Neo4j [\d.]+ lacks apoc\.trigger\.install or apoc\.cypher\.doIt: the feed needs"),
     ("arcadedb", r"ArcadeDB .* lacks apoc\.trigger\.install or apoc\.cypher\.doIt: the feed needs")],
)  # fmt: skip
def test_a_graph_without_apoc(graph: str, words: str, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue(graph)
    assert isinstance(server, Neo4jServer | ArcadeDbServer)
    with neo4j.GraphDatabase.driver(server.bolt_uri, auth=(server.user, server.password)) as driver:
        triggers = Triggers(driver, server.database)
        with pytest.raises(FeedError, match=words):
            triggers.install(PEOPLE)
        with pytest.raises(FeedError):
            triggers.check(PEOPLE)
