"""Changes that Neo4j captures: events as its documentation shows them, and the position up to which they are taken.

No server here has CDC: the graph is a list of transactions (`tests.support.capturing_graph`).
"""

from __future__ import annotations

import copy
import threading
from contextlib import nullcontext
from typing import Any
from unittest.mock import MagicMock

import neo4j
import pytest
from neo4j.exceptions import DatabaseError
from typer.testing import CliRunner

from refresher.cli.commands import app
from refresher.feed import node_tags, relationship_tags, run
from refresher.feed.cdc import CapturedChanges, is_source
from refresher.feed.changes import Changes
from refresher.feed.errors import FeedError
from refresher.feed.outbox import Outbox
from refresher.feed.watches import Watches, watches
from refresher.settings import WorkerSettings
from tests.support.capturing_graph import ACTED_IN, PERSON, CapturingGraph, CapturingServer
from tests.support.driver_values import server_error

INVALID = "ClientError.ChangeDataCapture.InvalidIdentifier"
TOO_OLD = "DatabaseError.ChangeDataCapture.ScanFailure"
DISABLED = "DatabaseError.ChangeDataCapture.Disabled"


def updated(document: dict[str, Any], before: Any, after: Any, **others: Any) -> dict[str, Any]:
    return {**document, "operation": "u", "state": {"before": before, "after": after}, **others}


class Store(dict[str, bytes]):
    """Redis, of which the source uses GET and SET."""

    def execute_all(self, commands: list[Any]) -> list[Any]:
        ((name, key, *value),) = commands
        return [self.get(key) if name == "GET" else self.update({key: value[0]})]


@pytest.fixture(autouse=True)
def watched() -> None:
    watches.node("Person", key="ssn")
    watches.node("Employee", key="id")
    watches.relationship("ACTED_IN")


@pytest.fixture
def graph() -> CapturingGraph:
    return CapturingGraph()


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def source(graph: CapturingGraph, store: Store) -> CapturedChanges:
    made = source_of(graph, store)
    made.acknowledge(made.take())
    return made


def source_of(graph: CapturingGraph, store: Store, of: Watches = watches) -> CapturedChanges:
    return CapturedChanges(CapturingServer(graph), of, store, "ns")  # type: ignore[arg-type]


def is_met(changes: Changes, tags: tuple[str, ...]) -> bool:
    return not set(changes.tags).isdisjoint(tags)


def everything_is_met(changes: Changes) -> bool:
    return all(
        is_met(changes, tags)
        for tags in (node_tags("Person", "x"), node_tags("Employee"), relationship_tags("ACTED_IN", "Person", "x"))
    )


def test_a_created_node_is_known_by_each_of_its_watched_labels(graph: CapturingGraph, source: CapturedChanges) -> None:
    graph.commit(PERSON)
    changes = source.take()
    assert set(changes.tags) >= {"Person", "Person:ssn=Y654321", "Employee", "Employee:id=1001"}
    assert not is_met(changes, node_tags("Person", "other"))
    assert (len(changes.ages_seconds), changes.bookmarks, changes.bulk) == (1, ("FB:1",), 0)
    assert graph.asked == [
        {"select": "n", "labels": ["Employee"]},
        {"select": "n", "labels": ["Person"]},
        {"select": "r", "type": "ACTED_IN"},
    ]


@pytest.mark.parametrize("mode", ["FULL", "DIFF"])
def test_a_changed_key_is_known_before_and_after(graph: CapturingGraph, source: CapturedChanges, mode: str) -> None:
    graph.mode = mode
    before, after = ({"properties": {"ssn": value}, "labels": []} for value in ("A1", "B2"))
    graph.commit(updated(PERSON, before, after, keys={}, labels=["Person"]))
    changes = source.take()
    assert {"Person:ssn=A1", "Person:ssn=B2"} <= set(changes.tags)


@pytest.mark.parametrize("mode", ["FULL", "DIFF"])
@pytest.mark.parametrize(
    "after",
    [{"properties": {"ssn": "B2"}, "labels": ["Person"]}, {"properties": {"ssn": "A1"}, "labels": []}],
    ids=["another key", "a label less"],
)
def test_a_node_that_is_found_no_longer_changes_its_relationships(
    graph: CapturingGraph, source: CapturedChanges, mode: str, after: dict[str, Any]
) -> None:
    graph.mode = mode
    graph.commit(updated(PERSON, {"properties": {"ssn": "A1"}, "labels": ["Person"]}, after, keys={}, labels=[]))
    assert is_met(source.take(), relationship_tags("ACTED_IN", "Person", "at the other end"))


def test_a_changed_property_changes_no_relationship(graph: CapturingGraph, source: CapturedChanges) -> None:
    before, after = ({"properties": {"ssn": "A1", "name": name}, "labels": ["Person"]} for name in ("Ada", "Bo"))
    graph.commit(updated(PERSON, before, after, keys={}, labels=["Person"]))
    assert not is_met(source.take(), relationship_tags("ACTED_IN"))


def test_a_deleted_node_and_a_lost_label_are_known_by_the_state_before(
    graph: CapturingGraph, source: CapturedChanges
) -> None:
    state = {"properties": {"ssn": "A1", "id": 7}, "labels": ["Person", "Employee"]}
    graph.commit({**PERSON, "operation": "d", "state": {"before": state, "after": None}, "keys": {}})
    graph.commit(updated(PERSON, {**state}, {**state, "labels": ["Person"]}, keys={}))
    for changes in (source.take(), source.take()):
        assert {"Person:ssn=A1", "Employee:id=7"} <= set(changes.tags)


def test_what_diff_does_not_show_is_named_by_its_key_constraint(graph: CapturingGraph, source: CapturedChanges) -> None:
    graph.mode = "DIFF"
    change = {"properties": {"name": "Ada"}, "labels": []}
    graph.commit(updated(PERSON, change, change))
    assert "Person:ssn=Y654321" in source.take().tags


def test_what_diff_does_not_name_is_a_bulk_change(graph: CapturingGraph, source: CapturedChanges) -> None:
    graph.mode = "DIFF"
    change = {"properties": {"name": "Ada"}, "labels": []}
    graph.commit(updated(PERSON, change, change, keys={}, labels=["Person"]))
    changes = source.take()
    assert is_met(changes, node_tags("Person", "any"))
    assert not is_met(changes, node_tags("Employee", 1))
    assert changes.bulk == 1


def test_nodes_that_have_no_key_are_known_together(graph: CapturingGraph, source: CapturedChanges) -> None:
    state = {"properties": {"name": "Ada"}, "labels": ["Person"]}
    graph.commit(updated(PERSON, state, state, keys={}, labels=["Person"]))
    assert source.take().tags == ("Person", "Person:ssn=")


def test_a_relationship_is_known_at_its_ends(graph: CapturingGraph, source: CapturedChanges) -> None:
    graph.commit(ACTED_IN)
    changes = source.take()
    assert set(changes.tags) == {"ACTED_IN", "ACTED_IN@Person:ssn=Y654321"}  # MOVIE is not watched
    assert is_met(changes, relationship_tags("ACTED_IN"))


def test_an_end_without_a_node_key_makes_a_bulk_change(graph: CapturingGraph, source: CapturedChanges) -> None:
    graph.commit({**ACTED_IN, "start": {**ACTED_IN["start"], "keys": {}}})
    assert is_met(source.take(), relationship_tags("ACTED_IN", "Person", "any"))


def test_an_end_whose_key_changes_beside_the_relationship_is_known_by_both(
    graph: CapturingGraph, source: CapturedChanges
) -> None:
    before, after = ({"properties": {"ssn": value}, "labels": ["Person"]} for value in ("A1", "Y654321"))
    graph.commit(ACTED_IN, updated(PERSON, before, after, keys={}, labels=["Person"]))
    assert {"ACTED_IN@Person:ssn=A1", "ACTED_IN@Person:ssn=Y654321"} <= set(source.take().tags)


@pytest.mark.parametrize(
    "event",
    [
        None,
        {},
        {"eventType": "x"},
        {**PERSON, "labels": None},
        {**PERSON, "state": {"after": 1}},
        {**ACTED_IN, "end": None},
    ],
)
def test_an_event_that_can_t_be_read_invalidates_all_that_is_watched(
    graph: CapturingGraph, source: CapturedChanges, event: Any
) -> None:
    graph.commit(PERSON, event)
    assert everything_is_met(source.take())


def test_values_of_the_graph_s_own_types_can_be_read(graph: CapturingGraph, source: CapturedChanges) -> None:
    event = copy.deepcopy(PERSON)
    event["state"]["after"]["properties"] |= {"born": neo4j.time.Date(1970, 1, 1), "tags": ["a"], "raw": b"x"}
    graph.commit(event)
    assert "Person:ssn=Y654321" in source.take().tags


def test_a_large_transaction_is_taken_whole_and_names_no_node(graph: CapturingGraph, source: CapturedChanges) -> None:
    graph.commit(
        *(
            updated(PERSON, None, {"properties": {"ssn": str(n)}, "labels": ["Person"]}, keys={}, labels=[])
            for n in range(3_000)
        )
    )
    graph.commit(ACTED_IN)
    changes = source.take()
    assert set(changes.tags) == {"Person", "Person:*"}
    assert (changes.positions, changes.bulk) == (("1.2999",), 1)
    assert graph.read <= 3_001
    source.acknowledge(changes)
    assert "ACTED_IN" in source.take().tags


def test_changes_come_again_until_they_are_acknowledged(
    graph: CapturingGraph, store: Store, source: CapturedChanges
) -> None:
    for _ in range(3):
        graph.commit(PERSON)
    first = source.take()
    again = source_of(graph, store).take()  # another consumer
    assert (again.tags, again.positions, again.bookmarks) == (first.tags, first.positions, first.bookmarks)
    assert first.positions == ("1.0", "2.0", "3.0")
    source.acknowledge(first)
    assert source.take().positions == ()


def test_a_position_moves_on_while_nothing_that_is_watched_changes(
    graph: CapturingGraph, store: Store, source: CapturedChanges
) -> None:
    graph.commit()
    assert source.take().positions == ()
    assert store["ns:f1"].endswith(b" 1.end")


def test_without_a_position_all_that_is_watched_is_invalidated(graph: CapturingGraph, store: Store) -> None:
    graph.commit(PERSON)
    source = source_of(graph, store)
    first = source.take()
    assert everything_is_met(first)
    assert first.bookmarks == ("FB:1",)
    assert not store  # until it is acknowledged
    source.acknowledge(first)
    assert source.take().positions == ()


@pytest.mark.parametrize("code", [INVALID, TOO_OLD])
def test_a_position_that_the_graph_does_not_know_is_a_lost_one(
    graph: CapturingGraph, source: CapturedChanges, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    graph.commit(PERSON)
    graph.failing = code
    changes = source.take()
    assert everything_is_met(changes)
    assert "no position" in caplog.text
    graph.failing = ""
    source.acknowledge(changes)
    assert source.take().positions == ()


def test_another_failure_keeps_the_position(graph: CapturingGraph, store: Store, source: CapturedChanges) -> None:
    kept = dict(store)
    graph.failing = DISABLED
    with pytest.raises(DatabaseError):
        source.take()
    assert store == kept


def test_a_position_of_other_watches_is_a_lost_one(
    graph: CapturingGraph, store: Store, source: CapturedChanges
) -> None:
    fewer = Watches({"Person": "ssn"}, set())
    source_of(graph, store, fewer).acknowledge(source_of(graph, store, fewer).take())
    assert everything_is_met(source.take())


def test_a_refusal_of_redis_is_raised(graph: CapturingGraph) -> None:
    class Refusing(Store):
        def execute_all(self, commands: list[Any]) -> list[Any]:
            return [PermissionError("NOPERM")]

    with pytest.raises(PermissionError):
        source_of(graph, Refusing()).take()


def test_it_is_the_source_where_the_database_captures_changes(
    graph: CapturingGraph, caplog: pytest.LogCaptureFixture
) -> None:
    keyed = {"SHOW CONSTRAINTS": [{"labelsOrTypes": ["Person"], "properties": ["ssn"]}]}
    assert is_source(CapturingServer(graph, keyed), watches)  # type: ignore[arg-type]
    assert "CREATE CONSTRAINT FOR (n:`Employee`) REQUIRE n.`id` IS NODE KEY" in caplog.text
    assert "Person" not in caplog.text


@pytest.mark.parametrize(
    "answers",
    [
        {"SHOW PROCEDURES": [{"n": 0}]},
        {"db.cdc.current": server_error(DISABLED)},
        {"trigger": object()},
        {"watches": Watches()},
    ],
    ids=["Community", "off", "trigger", "nothing is watched"],
)
def test_it_is_not_the_source_elsewhere(graph: CapturingGraph, answers: dict[str, Any]) -> None:
    server = CapturingServer(graph, answers)
    server.trigger = answers.get("trigger")
    assert not is_source(server, answers.get("watches", watches))  # type: ignore[arg-type]


def test_apoc_without_triggers_is_no_hindrance(graph: CapturingGraph) -> None:
    server = CapturingServer(graph)
    server.trigger = FeedError("the graph refuses: Triggers have not been enabled.")
    assert is_source(server, watches)  # type: ignore[arg-type]


def test_a_missing_right_is_an_error_where_it_is_needed(graph: CapturingGraph) -> None:
    server = CapturingServer(graph, {"db.cdc.query": server_error("ClientError.Security.Forbidden")})
    with pytest.raises(FeedError):
        is_source(server, watches)  # type: ignore[arg-type]
    server.trigger = object()
    assert not is_source(server, watches)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (
            ["install"],
            "nothing to install, the database captures changes itself (CDC): Employee by id, Person by ssn, ACTED_IN",
        ),
        (["status"], "CDC      Employee by id, Person by ssn, ACTED_IN"),
        (["status", "--json"], '"cdc":true'),
    ],
)
def test_the_commands_show_that_it_is_the_source(
    graph: CapturingGraph, monkeypatch: pytest.MonkeyPatch, command: list[str], shown: str
) -> None:
    monkeypatch.setattr(run, "opened_triggers", lambda _: nullcontext(CapturingServer(graph)))
    result = CliRunner().invoke(app, ["feed", *command])
    assert result.exit_code == 0
    assert shown in result.stdout.replace(" true", "true")


@pytest.mark.parametrize(("captures", "source"), [(1, CapturedChanges), (0, Outbox)])
def test_the_consumer_takes_captured_changes_where_the_graph_has_them(
    graph: CapturingGraph, store: Store, monkeypatch: pytest.MonkeyPatch, captures: int, source: type
) -> None:
    made: list[Any] = []
    monkeypatch.setattr(run, "Consumer", lambda source, *_, **__: made.append(source) or MagicMock())
    server = CapturingServer(graph, {"SHOW PROCEDURES": [{"n": captures}]})
    run.consume(server, store, WorkerSettings.from_env({}), threading.Event())  # type: ignore[arg-type]
    assert [type(one) for one in made] == [source]
