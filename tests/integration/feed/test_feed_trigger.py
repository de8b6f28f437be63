"""Installation of the trigger on a Neo4j with APOC, and what is said where it can't be installed or can't run."""

from __future__ import annotations

import re
import time

import neo4j
import pytest

from refresher.embedded.neo4j_server import Neo4jWithApoc
from refresher.feed import triggers as module
from refresher.feed.errors import FeedError
from refresher.feed.triggers import NAME, Triggers
from refresher.feed.watches import Watches
from tests.servers.neo4j_server import SHORT_LIVED, Neo4jWithoutTriggers
from tests.support.waiting import MAX_WAIT_SECONDS, eventually
from tests.support.watched_graph import WatchedGraph

PEOPLE = Watches({"Person": "id"}, {"KNOWS"})


@pytest.fixture
def triggers(watched_graph: WatchedGraph) -> Triggers:
    """Those of an empty graph, where nothing is installed."""
    watched_graph.triggers.uninstall()
    return watched_graph.triggers


def administer(triggers: Triggers, statement: str) -> None:
    with triggers.driver.session(database="system") as session:
        session.run(statement, name=NAME).consume()  # type: ignore[arg-type]


def test_install_makes_the_graph_note_changes_and_may_be_repeated(triggers: Triggers) -> None:
    for _ in range(2):
        triggers.install(PEOPLE)
        triggers.check(PEOPLE)
    triggers.driver.execute_query("CREATE (:Person {id: 1})")
    assert triggers.backlog().notes == 1


def test_install_replaces_what_was_watched(triggers: Triggers) -> None:
    triggers.install(PEOPLE)
    triggers.install(Watches({"Movie": "title"}))
    triggers.driver.execute_query("CREATE (:Person {id: 1})")
    assert triggers.backlog().notes == 0
    triggers.driver.execute_query("CREATE (:Movie {title: 'Heat'})")
    assert triggers.backlog().notes == 1


def test_uninstall_removes_trigger_and_notes(triggers: Triggers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMOVED_AT_ONCE", 3)
    triggers.install(PEOPLE)
    for number in range(8):
        triggers.driver.execute_query("CREATE (:Person {id: $number})", number=number)
    assert triggers.uninstall() == 8
    triggers.driver.execute_query("CREATE (:Person {id: 9})")
    assert triggers.installed() is None
    assert triggers.backlog().notes == 0
    assert triggers.uninstall() == 0


def test_the_backlog_has_the_age_of_its_oldest_note(triggers: Triggers) -> None:
    triggers.install(PEOPLE)
    began_at = time.monotonic()
    for number in range(2):
        triggers.driver.execute_query("CREATE (:Person {id: $number})", number=number)
    eventually(lambda: triggers.backlog().oldest_seconds >= 0.2, "the oldest note is 0.2 s old")
    backlog = triggers.backlog()
    assert backlog.notes == 2
    assert backlog.oldest_seconds <= time.monotonic() - began_at + 0.01


def test_nothing_that_is_watched(triggers: Triggers) -> None:
    with pytest.raises(FeedError, match=r'nothing is watched: say watch\("Person", key="id"\)'):
        triggers.install(Watches())


def test_no_trigger(triggers: Triggers) -> None:
    with pytest.raises(FeedError, match=r"^the trigger is not installed: refresher feed install; or, in Enterprise"):
        triggers.check(PEOPLE)


OTHERS = {
    "another label": Watches({"Person": "id", "Movie": "title"}, {"KNOWS"}),
    "another key": Watches({"Person": "name"}, {"KNOWS"}),
    "another type": Watches({"Person": "id"}, {"LIKES"}),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_trigger_that_watches_something_else(other: str, triggers: Triggers) -> None:
    triggers.install(PEOPLE)
    with pytest.raises(FeedError, match="not what REFRESHER_QUERIES and this release require: refresher feed install"):
        triggers.check(OTHERS[other])


def test_a_trigger_that_names_more_changes(triggers: Triggers, monkeypatch: pytest.MonkeyPatch) -> None:
    triggers.install(PEOPLE)
    monkeypatch.setattr(module, "NOTED_ONE_BY_ONE", 10)
    with pytest.raises(FeedError, match="refresher feed install"):
        triggers.check(PEOPLE)
    triggers.install(PEOPLE)
    triggers.check(PEOPLE)


def test_a_trigger_of_another_release(triggers: Triggers) -> None:
    triggers.install(PEOPLE)
    administer(triggers, "CALL apoc.trigger.install('neo4j', $name, 'RETURN 1', {phase: 'before'}, {params: {}})")
    eventually(lambda: (found := triggers.installed()) is not None and not found.is_current, "it is another one")
    with pytest.raises(FeedError, match="refresher feed install"):
        triggers.check(PEOPLE)


def test_a_paused_trigger(triggers: Triggers) -> None:
    triggers.install(PEOPLE)
    administer(triggers, "CALL apoc.trigger.stop('neo4j', $name)")
    eventually(lambda: (found := triggers.installed()) is not None and found.is_paused, "it is paused")
    with pytest.raises(FeedError, match=r"the trigger is paused: refresher feed install, or") as raised:
        triggers.check(PEOPLE)
    remedy = re.search(r"CALL apoc\.trigger\.start\(.*?\)", str(raised.value))
    assert remedy is not None
    administer(triggers, remedy[0])
    eventually(lambda: (found := triggers.installed()) is not None and not found.is_paused, "it runs again")
    triggers.check(PEOPLE)


def test_install_starts_a_paused_trigger(triggers: Triggers) -> None:
    triggers.install(PEOPLE)
    administer(triggers, "CALL apoc.trigger.stop('neo4j', $name)")
    eventually(lambda: (found := triggers.installed()) is not None and found.is_paused, "it is paused")
    triggers.install(PEOPLE)
    triggers.check(PEOPLE)


def test_a_wrong_password(neo4j_with_apoc: Neo4jWithApoc) -> None:
    with (
        neo4j.GraphDatabase.driver(neo4j_with_apoc.bolt_uri, auth=("neo4j", "wrong")) as driver,
        pytest.raises(FeedError, match="REFRESHER_FEED_USER and REFRESHER_FEED_PASSWORD name a user of the graph"),
    ):
        Triggers(driver, "neo4j").install(PEOPLE)


def test_a_database_that_is_not_there(triggers: Triggers) -> None:
    with pytest.raises(FeedError, match="NEO4J_DATABASE"):
        Triggers(triggers.driver, "missing").install(PEOPLE)


@pytest.mark.neo4j
def test_triggers_that_are_not_enabled() -> None:
    with (
        Neo4jWithoutTriggers.start(start_seconds=2 * MAX_WAIT_SECONDS, java_options=SHORT_LIVED) as server,
        neo4j.GraphDatabase.driver(server.bolt_uri, auth=(server.user, server.password)) as driver,
    ):
        triggers = Triggers(driver, None)
        for call in (triggers.install, triggers.check):
            with pytest.raises(FeedError, match=r"apoc\.trigger\.enabled=true in the server's conf/apoc\.conf"):
                call(PEOPLE)
        assert triggers.backlog().notes == 0
