"""Tags meet: those that a change of the graph invalidates, and those that a query gives its values."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from api_client.errors import ConfigurationError
from api_client.protocol.tags import MAX_TAG_BYTES, check_tags
from refresher.feed import node_tags, relationship_tags, watch, watch_relationship
from refresher.feed.changes import change_of, tags_of
from refresher.feed.watches import MAX_NAME_BYTES, watches


@pytest.fixture(autouse=True)
def watched() -> None:
    watch("Person", key="id")
    watch("Movie", key="title")
    watch_relationship("KNOWS")


def invalidated(
    nodes: list[Any] | None = None, relationships: list[Any] | None = None, *, bulk: bool = False
) -> set[str]:
    note = json.dumps({"bulk": bulk, "nodes": nodes or [], "relationships": relationships or []})
    return set(tags_of(change_of(note), watches))


LONG = "x" * 1_000


@pytest.mark.parametrize(
    ("in_graph", "in_params"),
    [
        (42, 42),
        (42.0, 42),
        (42, 42.0),
        ("Ada", "Ada"),
        (True, True),
        (1.5, 1.5),
        (LONG, LONG),
        ("e\u0301", "\u00e9"),
        ("e\u0301" * 99, "\u00e9" * 99),
    ],
    ids=repr,
)
def test_a_change_of_a_node_invalidates_what_depends_on_it(in_graph: object, in_params: object) -> None:
    changed = invalidated([["Person", [in_graph]]])
    assert changed.intersection(check_tags(node_tags("Person", in_params)))
    assert changed.intersection(node_tags("Person"))
    assert changed.isdisjoint(node_tags("Person", "other"))
    assert changed.isdisjoint(node_tags("Movie"))


def test_a_label_is_known_however_its_characters_are_composed() -> None:
    watch("Caf\u00e9e\u0301", key="id")
    changed = invalidated([["Caf\u00e9e\u0301", [1]]])
    assert set(check_tags(node_tags("Caf\u00e9e\u0301", 1))) & changed == {"Caf\u00e9\u00e9:id=1"}


@pytest.mark.parametrize("key", [math.nan, math.inf, -math.inf], ids=repr)
def test_a_number_that_json_has_not_is_known_by_its_label(key: float) -> None:
    assert node_tags("Person", key) == ("Person", "Person:*")


@pytest.mark.parametrize("key", [[1, 2], {"x": 1}], ids=repr)
def test_a_key_of_another_kind_is_known_by_its_label(key: object) -> None:
    assert invalidated([["Person", [key]]]) == {"Person"}
    assert node_tags("Person", key) == ("Person", "Person:*")


def test_nodes_without_a_key_are_known_together() -> None:
    assert node_tags("Person", None) == ("Person:id=", "Person:*")
    assert invalidated([["Person", [""]]]) == {"Person", "Person:id="}


def test_a_change_of_a_relationship_invalidates_what_depends_on_it_at_either_end() -> None:
    ends = [{"label": "Person", "value": 1}, {"label": "Person", "value": 2}]
    changed = invalidated(relationships=[["KNOWS", ends]])
    assert changed == {"KNOWS", "KNOWS@Person:id=1", "KNOWS@Person:id=2"}
    for tags in (relationship_tags("KNOWS"), relationship_tags("KNOWS", "Person", 2)):
        assert changed.intersection(tags)
    assert changed.isdisjoint(relationship_tags("KNOWS", "Person", 3))
    assert changed.isdisjoint(node_tags("Person", 1))  # its properties are as before


def test_a_bulk_change_invalidates_all_that_depends_on_its_labels_and_types() -> None:
    changed = invalidated([["Person", []]], [["KNOWS", []]], bulk=True)
    for tags in (
        node_tags("Person"), node_tags("Person", 7), relationship_tags("KNOWS"), relationship_tags("KNOWS", "Person", 7)
    ):  # fmt: skip
        assert changed.intersection(tags)
    assert changed.isdisjoint(node_tags("Movie", "Heat"))


@pytest.mark.parametrize(
    "note", [None, 7, "", "{", "[]", '{"bulk": false}', '{"bulk": 1, "nodes": [], "relationships": []}']
)
def test_a_note_that_can_t_be_read_invalidates_all_that_is_watched(note: object) -> None:
    changed = set(tags_of(change_of(note), watches))
    for tags in (node_tags("Person", 1), node_tags("Movie"), relationship_tags("KNOWS", "Person", 1)):
        assert changed.intersection(tags)


def test_a_tag_is_as_short_as_a_tag_may_be() -> None:
    label, key, kind = "L" * MAX_NAME_BYTES, "k" * MAX_NAME_BYTES, "T" * MAX_NAME_BYTES
    watch(label, key=key)
    watch_relationship(kind)
    tags = [*node_tags(label, LONG, "v" * 64), *relationship_tags(kind, label, LONG, "v" * 64)]
    assert tags == list(check_tags(tags))
    assert max(len(tag.encode()) for tag in tags) <= MAX_TAG_BYTES


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: watch("Person", key="name"), "Person is watched by 'id' already"),
        (lambda: watch("", key="id"), "expected text of 1 to"),
        (lambda: watch("A" * 45, key="id"), "expected text of 1 to"),
        (lambda: watch_relationship(7), "expected text of 1 to"),
        (lambda: node_tags("Company", 1), r"it is not watched \(Movie, Person\): watch\('Company'"),
        (lambda: relationship_tags("LIKES"), r"it is not watched \(KNOWS\): watch_relationship\('LIKES'\)"),
        (lambda: relationship_tags("KNOWS", "Company", 1), "it is not watched"),
    ],
)  # fmt: skip
def test_wrong_use_is_named_with_what_is_allowed(wrong: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        wrong()
