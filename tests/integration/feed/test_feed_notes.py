"""Notes of the trigger: the tags that each kind of change invalidates, on a Neo4j with APOC."""

from __future__ import annotations

import pytest

from refresher.feed import triggers
from tests.support.watched_graph import WatchedGraph, with_id_of


def person(*keys: object) -> set[str]:
    return {"Person", *(f"Person:id={key}" for key in keys)}


def admin(*keys: object) -> set[str]:
    return {"Admin", *(f"Admin:code={key}" for key in keys)}


def knows(*keys: object) -> set[str]:
    return {"KNOWS", *(f"KNOWS@Person:id={key}" for key in keys)}


ONE = "CREATE (:Person {id: 1, name: 'a'})"
PAIR = "CREATE (:Person {id: 1})-[:KNOWS {since: 1}]->(:Person {id: 2})"
MANY = "UNWIND range(1, 1001) AS i CREATE (:Person {id: i})"
CHANGES: dict[str, tuple[str, tuple[str, ...], set[str]]] = {
    "a node is created": ("", (ONE,), person(1)),
    "a node without a key is created": ("", ("CREATE (:Person)",), person("")),
    "a property is set": (ONE, ("MATCH (p:Person) SET p.name = 'b'",), person(1)),
    "a property is removed": (ONE, ("MATCH (p:Person) REMOVE p.name",), person(1)),
    "all properties are replaced": (ONE, ("MATCH (p:Person) SET p = {id: 2}",), person(1, 2)),
    "the key is changed": (ONE, ("MATCH (p:Person) SET p.id = 2",), person(1, 2)),
    "the key is removed": (ONE, ("MATCH (p:Person) REMOVE p.id",), person(1, "")),
    "the key is set twice": (
        ONE, ("MATCH (p:Person) SET p.id = 2", "MATCH (p:Person) SET p.id = 3"), person(1, 3)
    ),
    "a label is added": (ONE, ("MATCH (p:Person) SET p:Admin, p.code = 'c'",), person(1) | admin("c")),
    "a label is removed": (
        "CREATE (:Person:Admin {id: 1, code: 'c'})", ("MATCH (p:Person) REMOVE p:Admin",), person(1) | admin("c")
    ),
    "the only label is removed": (ONE, ("MATCH (p:Person) REMOVE p:Person",), person(1)),
    "a label is removed, the key changed": (
        ONE, ("MATCH (p:Person) SET p.id = 2 REMOVE p:Person",), person(1, 2)
    ),
    "a label is added to a node with a key": ("CREATE (:Other {id: 1})", ("MATCH (o:Other) SET o:Person",), person(1)),
    "a node is deleted": (ONE, ("MATCH (p:Person) DELETE p",), person(1)),
    "the key is changed, the node deleted": (
        ONE, ("MATCH (p:Person) SET p.id = 2", "MATCH (p:Person) DELETE p"), person(1)
    ),
    "a node is deleted with its relationships": (
        PAIR, ("MATCH (p:Person {id: 1}) DETACH DELETE p",), person(1) | knows(1, 2)
    ),
    "both ends are deleted": (PAIR, ("MATCH (p:Person) DETACH DELETE p",), person(1, 2) | knows(1, 2)),
    "a relationship is created": (
        "CREATE (:Person {id: 1}), (:Person {id: 2})",
        ("MATCH (a:Person {id: 1}), (b:Person {id: 2}) CREATE (a)-[:KNOWS]->(b)",),
        knows(1, 2),
    ),
    "a relationship's property is set": (PAIR, ("MATCH ()-[r:KNOWS]->() SET r.since = 2",), knows(1, 2)),
    "a relationship's property is removed": (PAIR, ("MATCH ()-[r:KNOWS]->() REMOVE r.since",), knows(1, 2)),
    "a relationship is deleted": (PAIR, ("MATCH ()-[r:KNOWS]->() DELETE r",), knows(1, 2)),
    "a relationship is deleted, an end's key changed": (
        PAIR, ("MATCH (a)-[r:KNOWS]->() SET a.id = 3 DELETE r",), person(1, 3) | knows(1, 2, 3)
    ),
    "an end has its key changed": (
        PAIR, ("MATCH (p:Person {id: 1}) SET p.id = 3",), person(1, 3) | knows(1, 2, 3)
    ),
    "an end has its key set to what it was": (
        PAIR, ("MATCH (p:Person {id: 1}) SET p += {id: 1, name: 'b'}",), person(1)
    ),
    "an end has its key removed": (PAIR, ("MATCH (p:Person {id: 1}) REMOVE p.id",), person(1, "") | knows(1, 2)),
    "an end has a property changed": (PAIR, ("MATCH (p:Person {id: 1}) SET p.name = 'b'",), person(1)),
    "an end gets a label": (
        PAIR,
        ("MATCH (p:Person {id: 1}) SET p:Admin, p.code = 'c'",),
        person(1) | admin("c") | knows(1, 2) | {"KNOWS@Admin:code=c"},
    ),
    "an end gets a label that is not watched": (PAIR, ("MATCH (p:Person {id: 1}) SET p:Other",), person(1)),
    "an end loses its label": (PAIR, ("MATCH (p:Person {id: 1}) REMOVE p:Person",), person(1) | knows(1, 2)),
    "both ends lose their label": (PAIR, ("MATCH (p:Person) REMOVE p:Person",), person(1, 2) | knows(1, 2)),
    "an end loses its label, the relationship is deleted": (
        PAIR, ("MATCH (p:Person {id: 1})-[r]->() REMOVE p:Person DELETE r",), person(1) | knows(1, 2)
    ),
    "an end of many loses its label": (
        f"{ONE} WITH * MATCH (p:Person) UNWIND range(1, 1001) AS i CREATE (p)-[:KNOWS]->(:Other)",
        ("MATCH (p:Person) REMOVE p:Person",),
        {"Person", "Person:*", "KNOWS", "KNOWS:*"},
    ),
    "a relationship to itself": (ONE, ("MATCH (p:Person) CREATE (p)-[:KNOWS]->(p)",), knows(1)),
    "a relationship to what is not watched": (ONE, ("MATCH (p:Person) CREATE (p)-[:KNOWS]->(:Other)",), knows(1)),
    "a node and a relationship at once": ("", (PAIR,), person(1, 2) | knows(1, 2)),
    "keys of odd kinds": ("", ("UNWIND [[1], point({x: 1, y: 2})] AS key CREATE (:Person {id: key})",), person()),
    "keys of time": (
        "",
        ("UNWIND [date('2020-01-01'), duration('P1D')] AS key CREATE (:Person {id: key})",),
        person("2020-01-01", "P1D"),
    ),
    "a decimal key and a truth value": ("", ("CREATE (:Person {id: 2.5}), (:Person {id: true})",), person(2.5, True)),
    "a decimal key without decimals": ("", ("CREATE (:Person {id: 42.0})",), person(42)),
    "a key with quotes and lines": ("", ("CREATE (:Person {id: 'a\"\\'\\n\\u00e9'})",), person("a\"'\n\u00e9")),
    "a key whose characters are composed": ("", ("CREATE (:Person {id: 'e\u0301'})",), person("\u00e9")),
    "many are created": ("", (MANY,), {"Person", "Person:*"}),
    "many are deleted": (MANY, ("MATCH (p:Person) DELETE p",), {"Person", "Person:*"}),
    "many lose their label": (MANY, ("MATCH (p:Person) REMOVE p:Person",), {"Person", "Person:*"}),
    "many relationships": (
        ONE,
        ("MATCH (p:Person) UNWIND range(1, 1001) AS i CREATE (p)-[:KNOWS]->(p)",),
        {"KNOWS", "KNOWS:*"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_invalidates(change: str, watched_graph: WatchedGraph) -> None:
    before, statements, tags = CHANGES[change]
    if before:
        watched_graph.run(before)
        watched_graph.taken()
    watched_graph.run(*statements)
    assert watched_graph.taken() == (tags, 1)
    assert watched_graph.taken() == (set(), 0), "acknowledged, and nothing noted of it"


UNNOTED = {
    "an unwatched label": ("", "CREATE (:Other {id: 1})-[:LIKES]->(:Other)"),
    "an unwatched label's key": ("CREATE (:Other {id: 1})", "MATCH (o:Other) SET o.id = 2"),
    "an unwatched type between watched nodes": (PAIR, "MATCH (a)-[:KNOWS]->(b) CREATE (a)-[:LIKES]->(b)"),
    "a schema": ("", "CREATE INDEX odd IF NOT EXISTS FOR (p:Person) ON (p.odd)"),
    "a read": (PAIR, "MATCH (p:Person) RETURN count(p)"),
}


@pytest.mark.parametrize("change", UNNOTED)
def test_no_note_is_left_by(change: str, watched_graph: WatchedGraph) -> None:
    before, statement = UNNOTED[change]
    if before:
        watched_graph.run(before)
        watched_graph.taken()
    watched_graph.run(statement)
    assert watched_graph.triggers.backlog().notes == 0


def test_a_write_that_is_rolled_back_leaves_no_note(watched_graph: WatchedGraph) -> None:
    with watched_graph.driver.session(database="neo4j") as session, session.begin_transaction() as transaction:
        transaction.run(PAIR).consume()
        transaction.rollback()
    assert watched_graph.triggers.backlog().notes == 0


def test_as_many_changes_as_are_named(watched_graph: WatchedGraph) -> None:
    watched_graph.run("UNWIND range(1, $n) AS i CREATE (:Person {id: i})", n=triggers.NOTED_ONE_BY_ONE)
    assert watched_graph.taken() == (person(*range(1, triggers.NOTED_ONE_BY_ONE + 1)), 1)


def test_a_consumer_that_is_late_removes_no_later_note(watched_graph: WatchedGraph) -> None:
    """Neo4j gives the id of a deleted node to another, at some time."""
    outbox = watched_graph.outbox
    watched_graph.run("CREATE (:Person {id: 1})")
    late = outbox.take()
    outbox.acknowledge(late)
    watched_graph.run("CREATE (:Person {id: 2})")
    later = outbox.take()
    outbox.acknowledge(with_id_of(late, later))
    assert watched_graph.triggers.backlog().notes == 1
    outbox.acknowledge(later)
    assert watched_graph.triggers.backlog().notes == 0


def test_a_note_of_somebody_else_invalidates_everything_once(watched_graph: WatchedGraph) -> None:
    watched_graph.run("CREATE (:RefresherChange {changes: 7, at: 'now'})")
    assert watched_graph.taken() == ({"Person", "Person:*", "Admin", "Admin:*", "KNOWS", "KNOWS:*"}, 1)
    assert watched_graph.taken() == (set(), 0)
