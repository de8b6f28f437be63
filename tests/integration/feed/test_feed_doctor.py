"""Doctor's check of the change feed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from api_client import ReaderSettings
from refresher.embedded.neo4j_server import Neo4jWithApoc
from refresher.feed.triggers import INSTEAD
from refresher.feed.watches import watch, watch_relationship
from refresher.ops.doctor import feed
from refresher.ops.doctor.deployment import Deployment
from refresher.ops.doctor.findings import Level
from refresher.settings import WorkerSettings
from tests.support.watched_graph import WatchedGraph


@pytest.fixture
def deployment(neo4j_with_apoc: Neo4jWithApoc, nothing_watched: None) -> Iterator[Deployment]:
    """One with CACHE_FEED, whose queries watch what the graph does."""
    watch("Person", key="id")
    watch("Admin", key="code")
    watch_relationship("KNOWS")
    server = neo4j_with_apoc
    settings = WorkerSettings(
        neo4j_uri=server.bolt_uri, neo4j_user=server.user, neo4j_password=server.password, feed=True
    )
    with Deployment(settings, ReaderSettings()) as opened:
        yield opened


def test_a_feed_as_it_should_be(deployment: Deployment, watched_graph: WatchedGraph) -> None:
    watched_graph.run("CREATE (:Person {id: 1})")
    (found,) = feed.feed(deployment)
    assert found.level is Level.OK


def test_changes_that_nobody_consumes(
    deployment: Deployment, watched_graph: WatchedGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "WAITS_SECONDS", 0.0)
    watched_graph.run("CREATE (:RefresherChange {at: timestamp() - 60000})")
    (found,) = feed.feed(deployment)
    assert found.level is Level.WARNING
    assert re.fullmatch(r"1 transaction waits, the oldest of [67]\d\.\d s ago", found.message)


def test_no_trigger(deployment: Deployment, watched_graph: WatchedGraph) -> None:
    watched_graph.triggers.uninstall()
    (found,) = feed.feed(deployment)
    assert (found.level, found.message) == (
        Level.PROBLEM, f"the trigger is not installed: refresher feed install; {INSTEAD}"
    )  # fmt: skip


def test_without_a_feed_nothing_is_said(deployment: Any) -> None:
    deployment.worker = msgspec.structs.replace(deployment.worker, feed=False)
    assert list(feed.feed(deployment)) == []
