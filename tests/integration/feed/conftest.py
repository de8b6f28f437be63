"""The graph with its trigger, empty before each test."""

from __future__ import annotations

from collections.abc import Iterator

import neo4j
import pytest

from refresher.embedded.neo4j_server import Neo4jWithApoc
from refresher.feed.outbox import Outbox
from refresher.feed.triggers import Triggers
from refresher.feed.watches import Watches
from tests.support.waiting import MAX_WAIT_SECONDS
from tests.support.watched_graph import WatchedGraph


@pytest.fixture(scope="session")
def apoc_driver(neo4j_with_apoc: Neo4jWithApoc) -> Iterator[neo4j.Driver]:
    """A driver of the administrator."""
    server = neo4j_with_apoc
    with neo4j.GraphDatabase.driver(server.bolt_uri, auth=(server.user, server.password)) as driver:
        yield driver


@pytest.fixture
def watched_graph(apoc_driver: neo4j.Driver) -> WatchedGraph:
    """An empty graph that notes the changes of Person by id, Admin by code, and KNOWS."""
    watches = Watches({"Person": "id", "Admin": "code"}, {"KNOWS"})
    triggers = Triggers(apoc_driver, "neo4j")
    triggers.install(watches)
    graph = WatchedGraph(apoc_driver, triggers, Outbox(triggers, watches))
    graph.run("MATCH (n) DETACH DELETE n")
    graph.run("MATCH (n:RefresherChange) DELETE n")
    return graph


@pytest.fixture
def no_consumer_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a consumer that has published its state count as one that consumes, however busy the machine."""
    monkeypatch.setattr("refresher.feed.state.GONE_SECONDS", MAX_WAIT_SECONDS)


@pytest.fixture(autouse=True)
def watches_of_its_own(nothing_watched: None) -> None:
    """Let each test watch for itself."""
