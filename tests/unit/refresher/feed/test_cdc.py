"""Changes that Neo4j captures: events as its documentation shows them, and the position up to which they are taken.

No server here has CDC. The graph is a list of transactions that answers the statements of the source.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, Self
from unittest.mock import MagicMock

import neo4j
import pytest
from neo4j.exceptions import DatabaseError, Neo4jError
from typer.testing import CliRunner

from refresher.cli.commands import app
from refresher.feed import node_tags, relationship_tags, run
from refresher.feed.cdc import CapturedChanges, is_source
from refresher.feed.changes import Changes
from refresher.feed.errors import FeedError
from refresher.feed.outbox import Outbox
from refresher.feed.triggers import Backlog
from refresher.feed.watches import Watches, watches
from refresher.settings import WorkerSettings
from tests.support.driver_values import server_error

# As in "Format of change events" of Neo4j's manual of CDC, and with the keys of its page on key properties.
PERSON: dict[str, Any] = {
    "elementId": "4:b7e35973-0aff-42fa-873b-5de31868cb4a:1",
    "keys": {"Person": [{"firstName": "john", "lastName": "doe"}, {"ssn": "Y654321"}], "Employee": [{"id": 1001}]},
    "eventType": "n",
    "state": {
        "before": None,
        "after": {
            "properties": {"firstName": "john", "lastName": "doe", "ssn": "Y654321", "id": 1001},
            "labels": ["Person", "Employee"],
        },
    },
    "operation": "c",
    "labels": ["Person", "Employee"],
}
ACTED_IN: dict[str, Any] = {
    "elementId": "5:6a4af4ff-da3a-49e7-ae71-2c0ac3c1fc1a:0",
    "start": {
        "elementId": "4:b7e35973-0aff-42fa-873b-5de31868cb4a:1",
        "keys": {"Person": [{"ssn": "Y654321"}]},
        "labels": ["Person"],
    },
    "end": {"elementId": "4:6a4af4ff-da3a-49e7-ae71-2c0ac3c1fc1a:1", "keys": {}, "labels": ["MOVIE"]},
    "eventType": "r",
    "state": {"before": None, "after": {"properties": {"roles": "Jack Swigert"}}},
    "type": "ACTED_IN",
    "operation": "c",
    "keys": [{"registerId": 1125}, {"official": "Alice Roberts"}],
}
INVALID = "ClientError.ChangeDataCapture.InvalidIdentifier"
TOO_OLD = "DatabaseError.ChangeDataCapture.ScanFailure"
DISABLED = "DatabaseError.ChangeDataCapture.Disabled"


def updated(document: dict[str, Any], before: Any, after: Any, **others: Any) -> dict[str, Any]:
    return {**document, "operation": "u", "state": {"before": before, "after": after}, **others}


class Graph:
    """A driver, its session and its transaction: transactions by their ids, and one position per event."""

    def __init__(self) -> None:
        self.transactions: dict[int, list[dict[str, Any]]] = {}
        self.mode, self.failing, self.read, self.asked = "FULL", "", 0, [{}]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def session(self, **_: object) -> Graph:
        return self

    def execute_write(self, work: Any) -> Any:
        return work(self)

    def last_bookmarks(self) -> neo4j.Bookmarks:
        return neo4j.Bookmarks.from_raw_values([f"FB:{self.last}"])

    @property
    def last(self) -> int:
        return max(self.transactions, default=0)

    def commit(self, *events: Any) -> None:
        self.transactions[self.last + 1] = list(events)

    def single(self, **_: object) -> dict[str, str]:
        return {"id": f"{self.last}.end"}

    def run(self, statement: str, **params: Any) -> Any:
        if "db.cdc.query" not in statement:
            return self
        if self.failing:
            raise server_error(self.failing)
        self.asked = params["selectors"]
        return self.rows(int(params["position"].partition(".")[0]))

    def rows(self, after: int) -> Iterator[dict[str, Any]]:
        for number in sorted(number for number in self.transactions if number > after):
            for seq, event in enumerate(self.transactions[number]):
                self.read += 1
                yield {"id": f"{number}.{seq}", "txId": number, "mode": self.mode, "at": 1_000 * number, "event": event}


class Store(dict[str, bytes]):
    """Redis, of which the source uses GET and SET."""

    def execute_all(self, commands: list[Any]) -> list[Any]:
        ((name, key, *value),) = commands
        return [self.get(key) if name == "GET" else self.update({key: value[0]})]


class Server:
    """What `Triggers` is for the source: the driver, and single statements."""

    def __init__(self, driver: Graph, answers: dict[str, Any] | None = None) -> None:
        self.driver, self.database = driver, None
        self.trigger: Any = None
        self.answers: dict[str, Any] = {
            "SHOW PROCEDURES": [{"n": 1}],
            "db.cdc.query": [],
            "db.cdc.current": [{"id": "1"}],
            "SHOW CONSTRAINTS": [],
        }
        self.answers |= answers or {}

    def check(self, _: Watches) -> None: ...

    def backlog(self) -> Backlog:
        return Backlog(0, 0.0)

    def installed(self) -> Any:
        if isinstance(self.trigger, FeedError):
            raise self.trigger
        return self.trigger

    def read(self, statement: str) -> Any:
        answer = next(answer for words, answer in self.answers.items() if words in statement)
        if isinstance(answer, Neo4jError):
            raise FeedError("refused") from answer
        return answer


@pytest.fixture(autouse=True)
def watched() -> Iterator[None]:
    watches.node("Person", key="ssn")
    watches.node("Employee", key="id")
    watches.relationship("ACTED_IN")
    yield
    watches.nodes.clear()
    watches.relationships.clear()


@pytest.fixture
def graph() -> Graph:
    return Graph()


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def source(graph: Graph, store: Store) -> CapturedChanges:
    made = source_of(graph, store)
    made.acknowledge(made.take())
    return made


def source_of(graph: Graph, store: Store, of: Watches = watches) -> CapturedChanges:
    return CapturedChanges(Server(graph), of, store, "ns")  # type: ignore[arg-type]


def is_met(changes: Changes, tags: tuple[str, ...]) -> bool:
    return not set(changes.tags).isdisjoint(tags)


def everything_is_met(changes: Changes) -> bool:
    return all(
        is_met(changes, tags)
        for tags in (node_tags("Person", "x"), node_tags("Employee"), relationship_tags("ACTED_IN", "Person", "x"))
    )


def test_a_created_node_is_known_by_each_of_its_watched_labels(graph: Graph, source: CapturedChanges) -> None:
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
def test_a_changed_key_is_known_before_and_after(graph: Graph, source: CapturedChanges, mode: str) -> None:
    graph.mode = mode
    before, after = ({"properties": {"ssn": value}, "labels": []} for value in ("A1", "B2"))
    graph.commit(updated(PERSON, before, after, keys={}, labels=["Person"]))
    changes = source.take()
    assert {"Person:ssn=A1", "Person:ssn=B2"} <= set(changes.tags)
    assert changes.bulk == 0


def test_a_deleted_node_and_a_lost_label_are_known_by_the_state_before(graph: Graph, source: CapturedChanges) -> None:
    state = {"properties": {"ssn": "A1", "id": 7}, "labels": ["Person", "Employee"]}
    graph.commit({**PERSON, "operation": "d", "state": {"before": state, "after": None}, "keys": {}})
    graph.commit(updated(PERSON, {**state}, {**state, "labels": ["Person"]}, keys={}))
    for changes in (source.take(), source.take()):
        assert {"Person:ssn=A1", "Employee:id=7"} <= set(changes.tags)


def test_what_diff_does_not_show_is_named_by_its_key_constraint(graph: Graph, source: CapturedChanges) -> None:
    graph.mode = "DIFF"
    change = {"properties": {"name": "Ada"}, "labels": []}
    graph.commit(updated(PERSON, change, change))
    assert "Person:ssn=Y654321" in source.take().tags


def test_what_diff_does_not_name_is_a_bulk_change(graph: Graph, source: CapturedChanges) -> None:
    graph.mode = "DIFF"
    change = {"properties": {"name": "Ada"}, "labels": []}
    graph.commit(updated(PERSON, change, change, keys={}, labels=["Person"]))
    changes = source.take()
    assert is_met(changes, node_tags("Person", "any"))
    assert not is_met(changes, node_tags("Employee", 1))
    assert changes.bulk == 1


def test_a_node_that_has_no_key_is_known_by_its_label(graph: Graph, source: CapturedChanges) -> None:
    state = {"properties": {"name": "Ada"}, "labels": ["Person"]}
    graph.commit(updated(PERSON, state, state, keys={}, labels=["Person"]))
    assert source.take().tags == ("Person",)


def test_a_relationship_is_known_at_its_ends(graph: Graph, source: CapturedChanges) -> None:
    graph.commit(ACTED_IN)
    changes = source.take()
    assert set(changes.tags) == {"ACTED_IN", "ACTED_IN@Person:ssn=Y654321"}  # MOVIE is not watched
    assert is_met(changes, relationship_tags("ACTED_IN"))


def test_an_end_without_a_node_key_makes_a_bulk_change(graph: Graph, source: CapturedChanges) -> None:
    graph.commit({**ACTED_IN, "start": {**ACTED_IN["start"], "keys": {}}})
    assert is_met(source.take(), relationship_tags("ACTED_IN", "Person", "any"))


def test_an_end_whose_key_changes_beside_the_relationship_is_known_by_both(
    graph: Graph, source: CapturedChanges
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
    graph: Graph, source: CapturedChanges, event: Any
) -> None:
    graph.commit(PERSON, event)
    assert everything_is_met(source.take())


def test_values_of_the_graph_s_own_types_can_be_read(graph: Graph, source: CapturedChanges) -> None:
    event = copy.deepcopy(PERSON)
    event["state"]["after"]["properties"] |= {"born": neo4j.time.Date(1970, 1, 1), "tags": ["a"], "raw": b"x"}
    graph.commit(event)
    assert "Person:ssn=Y654321" in source.take().tags


def test_a_large_transaction_is_taken_whole_and_names_no_node(graph: Graph, source: CapturedChanges) -> None:
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


def test_changes_come_again_until_they_are_acknowledged(graph: Graph, store: Store, source: CapturedChanges) -> None:
    for _ in range(3):
        graph.commit(PERSON)
    first = source.take()
    again = source_of(graph, store).take()  # another consumer
    assert (again.tags, again.positions, again.bookmarks) == (first.tags, first.positions, first.bookmarks)
    assert first.positions == ("1.0", "2.0", "3.0")
    source.acknowledge(first)
    assert source.take().positions == ()


def test_a_position_moves_on_while_nothing_that_is_watched_changes(
    graph: Graph, store: Store, source: CapturedChanges
) -> None:
    graph.commit()
    assert source.take().positions == ()
    assert store["ns:f1"].endswith(b" 1.end")


def test_without_a_position_all_that_is_watched_is_invalidated(graph: Graph, store: Store) -> None:
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
    graph: Graph, source: CapturedChanges, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    graph.commit(PERSON)
    graph.failing = code
    changes = source.take()
    assert everything_is_met(changes)
    assert "no position" in caplog.text
    graph.failing = ""
    source.acknowledge(changes)
    assert source.take().positions == ()


def test_another_failure_keeps_the_position(graph: Graph, store: Store, source: CapturedChanges) -> None:
    kept = dict(store)
    graph.failing = DISABLED
    with pytest.raises(DatabaseError):
        source.take()
    assert store == kept


def test_a_position_of_other_watches_is_a_lost_one(graph: Graph, store: Store, source: CapturedChanges) -> None:
    fewer = Watches({"Person": "ssn"}, set())
    source_of(graph, store, fewer).acknowledge(source_of(graph, store, fewer).take())
    assert everything_is_met(source.take())


def test_a_refusal_of_redis_is_raised(graph: Graph) -> None:
    class Refusing(Store):
        def execute_all(self, commands: list[Any]) -> list[Any]:
            return [PermissionError("NOPERM")]

    with pytest.raises(PermissionError):
        source_of(graph, Refusing()).take()


def test_it_is_the_source_where_the_database_captures_changes(graph: Graph, caplog: pytest.LogCaptureFixture) -> None:
    keyed = {"SHOW CONSTRAINTS": [{"labelsOrTypes": ["Person"], "properties": ["ssn"]}]}
    assert is_source(Server(graph, keyed), watches)  # type: ignore[arg-type]
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
def test_it_is_not_the_source_elsewhere(graph: Graph, answers: dict[str, Any]) -> None:
    server = Server(graph, answers)
    server.trigger = answers.get("trigger")
    assert not is_source(server, answers.get("watches", watches))  # type: ignore[arg-type]


def test_apoc_without_triggers_is_no_hindrance(graph: Graph) -> None:
    server = Server(graph)
    server.trigger = FeedError("the graph refuses: Triggers have not been enabled.")
    assert is_source(server, watches)  # type: ignore[arg-type]


def test_a_missing_right_is_an_error_where_it_is_needed(graph: Graph) -> None:
    server = Server(graph, {"db.cdc.query": server_error("ClientError.Security.Forbidden")})
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
    graph: Graph, monkeypatch: pytest.MonkeyPatch, command: list[str], shown: str
) -> None:
    monkeypatch.setattr(run, "opened_triggers", lambda _: nullcontext(Server(graph)))
    result = CliRunner().invoke(app, ["feed", *command])
    assert result.exit_code == 0
    assert shown in result.stdout.replace(" true", "true")


@pytest.mark.parametrize(("captures", "source"), [(1, CapturedChanges), (0, Outbox)])
def test_the_consumer_takes_captured_changes_where_the_graph_has_them(
    graph: Graph, store: Store, monkeypatch: pytest.MonkeyPatch, captures: int, source: type
) -> None:
    made: list[Any] = []
    monkeypatch.setattr(run, "Consumer", lambda source, *_, **__: made.append(source) or MagicMock())
    server = Server(graph, {"SHOW PROCEDURES": [{"n": captures}]})
    run.consume(server, store, WorkerSettings.from_env({}), threading.Event())  # type: ignore[arg-type]
    assert [type(one) for one in made] == [source]
