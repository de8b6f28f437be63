"""Doctor's check of the change feed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from api_client import ReaderSettings
from api_client.protocol.lease import process_identity
from refresher.cli.commands import app
from refresher.embedded import RedisServer
from refresher.embedded.neo4j_server import Neo4jWithApoc
from refresher.feed.consumer import Consumer
from refresher.feed.state import read_state
from refresher.feed.triggers import INSTEAD
from refresher.feed.watches import watch, watch_relationship
from refresher.ops.doctor import feed
from refresher.ops.doctor.deployment import Deployment
from refresher.ops.doctor.findings import Level
from refresher.settings import WorkerSettings
from refresher.worker.redis_link import RetryingLink
from tests.support.watched_graph import WatchedGraph

pytestmark = pytest.mark.usefixtures("no_consumer_is_gone", "patient_commands")


@pytest.fixture
def deployment(neo4j_with_apoc: Neo4jWithApoc, clean_redis: RedisServer) -> Iterator[Deployment]:
    """One with CACHE_FEED, whose queries watch what the graph does."""
    watch("Person", key="id")
    watch("Admin", key="code")
    watch_relationship("KNOWS")
    server = neo4j_with_apoc
    settings = WorkerSettings(
        redis_url=clean_redis.url(0),
        neo4j_uri=server.bolt_uri,
        neo4j_user=server.user,
        neo4j_password=server.password,
        feed=True,
    )
    with Deployment(settings, ReaderSettings()) as opened:
        yield opened


def consume_once(deployment: Deployment, graph: WatchedGraph) -> None:
    with closing(RetryingLink(deployment.worker.redis_url)) as link:
        Consumer(graph.outbox, link.store, deployment.worker).step()


def test_a_feed_as_it_should_be(deployment: Deployment, watched_graph: WatchedGraph) -> None:
    watched_graph.run("CREATE (:Person {id: 1})")
    (found,) = feed.feed(deployment)
    assert (found.level, found.message) == (Level.WARNING, "nobody consumes the changes")
    consume_once(deployment, watched_graph)
    (found,) = feed.feed(deployment)
    assert found.level is Level.OK
    assert f"{process_identity()} consumes; 99 % of the last changes were invalidated within" in found.message


def test_changes_that_wait(
    deployment: Deployment, watched_graph: WatchedGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "WAITS_SECONDS", -1.0)
    consume_once(deployment, watched_graph)
    (found,) = feed.feed(deployment)
    assert found.level is Level.WARNING
    assert re.fullmatch(r"a change of .* ago waits", found.message)


def test_no_trigger(deployment: Deployment, watched_graph: WatchedGraph) -> None:
    watched_graph.triggers.uninstall()
    (found,) = feed.feed(deployment)
    assert (found.level, found.message) == (
        Level.PROBLEM, f"the trigger is not installed: refresher feed install; {INSTEAD}"
    )  # fmt: skip


def test_after_uninstall_nobody_is_said_to_be_missing(deployment: Deployment, watched_graph: WatchedGraph) -> None:
    consume_once(deployment, watched_graph)
    worker = deployment.worker
    graph = {"NEO4J_URI": worker.neo4j_uri, "NEO4J_USER": worker.neo4j_user, "NEO4J_PASSWORD": worker.neo4j_password}
    done = CliRunner().invoke(app, ["feed", "uninstall"], env={**graph, "CACHE_REDIS_URL": worker.redis_url})
    assert done.exit_code == 0, done.output
    assert read_state(deployment.cache, worker.namespace) is None


def test_without_a_feed_nothing_is_said(deployment: Any) -> None:
    deployment.worker = msgspec.structs.replace(deployment.worker, feed=False)
    assert list(feed.feed(deployment)) == []
