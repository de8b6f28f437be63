"""Tags of what a load reads: plans asked for once, keys from parameters and from the rows that a result shows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import neo4j
import pytest
from neo4j.exceptions import ClientError, TransientError

from api_client.protocol.keys import make_key
from api_client.protocol.tags import MAX_TAGS
from api_client.read.in_place import followers
from refresher.feed import watch, watch_relationship
from refresher.feed.auto import loads as loads_module
from refresher.feed.auto.loads import PLAN_SECONDS, Plans
from refresher.feed.watches import watches
from refresher.graph.reads import following_entries

PLANS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("plans.json").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def watched() -> None:
    watch("Person", key="id")
    watch("Movie", key="id")
    watch_relationship("KNOWS")
    watch_relationship("LIKES")


class Rows:
    """A result that has not been consumed, as far as `Reads` looks at it."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self._record_buffer: list[neo4j.Record] = []
        self._rows = [neo4j.Record(row) for row in rows]

    def _buffer(self, n: int) -> None:
        self._record_buffer = self._rows[:n]


class Graph:
    """A graph that explains the recorded plans, and counts how often."""

    def __init__(self) -> None:
        self.now, self.asked = 0.0, 0
        self.error: Exception | None = None
        self.plans = Plans(watches, monotonic=lambda: self.now)

    def explain(self, cypher: str, _: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        found: dict[str, Any] = next(one["plan"] for one in PLANS.values() if one["cypher"] == cypher)
        return found

    def tags(self, name: str, result: Any = None, /, **parameters: Any) -> set[str]:
        reads = self.plans.reads("friends_of")
        reads.note(PLANS[name]["cypher"], parameters, result or Rows(), self.explain)
        return set(reads.tags)


@pytest.fixture
def graph() -> Graph:
    return Graph()


def test_keys_come_from_the_parameters(graph: Graph) -> None:
    assert graph.tags("indexed point", id=42) == {"Person:id=42", "Person:*"}
    assert graph.tags("indexed in", ids=[1, 2]) == {"Person:id=1", "Person:id=2", "Person:*"}
    assert graph.tags("indexed param_list", rows=[{"id": 1}]) == {"Person:id=1", "Person:*"}


@pytest.mark.parametrize("rows", [[{"id": [1]}], [1], 7, None], ids=repr)
def test_a_key_that_has_no_tag_makes_it_all_of_the_label(graph: Graph, rows: Any) -> None:
    assert "Person" in graph.tags("indexed param_list", rows=rows)


def test_nobody_is_looked_up_by_no_key(graph: Graph) -> None:
    assert graph.tags("indexed in", ids=[]) == set()


def test_nodes_that_a_result_shows_are_known_by_their_keys(graph: Graph) -> None:
    tags = graph.tags("indexed onehop", Rows({"id": 2, "name": "Bo"}, {"id": 3, "name": "Cy"}), id=1)
    assert tags == {
        "KNOWS@Person:id=1", "KNOWS:*", "Person:id=2", "Person:id=3", "Person:*"
    }  # fmt: skip
    assert graph.tags("indexed onehop", id=1) == {"KNOWS@Person:id=1", "KNOWS:*"}


@pytest.mark.parametrize("rows", [[{}], [{"id": None}]], ids=repr)
def test_no_key_is_one_that_nodes_without_a_key_have(graph: Graph, rows: Any) -> None:
    assert graph.tags("indexed param_list", rows=rows) == {"Person:id=", "Person:*"}
    tags = graph.tags("indexed onehop", Rows({"id": None, "name": "Bo"}), id=1)
    assert {"Person:id=", "Person"} & tags == {"Person:id="}


def test_nodes_within_a_list_are_known_by_their_keys(graph: Graph) -> None:
    tags = graph.tags("indexed rollup", Rows({"names": [{"id": 2, "name": "Bo"}, {"id": 3, "name": "Cy"}]}), id=1)
    assert tags >= {"Person:id=2", "Person:id=3"}
    assert "Person" not in tags


@pytest.mark.parametrize(
    "rows",
    [{"names": [{"name": "Bo"}]}, {"names": 7}, {"names": [7]}, {"names": None}],
    ids=["no key", "no list", "no map", "nothing"],
)
def test_what_has_another_form_than_planned_is_all_of_the_label(graph: Graph, rows: dict[str, Any]) -> None:
    tags = graph.tags("indexed rollup", Rows(rows), id=1)
    assert tags & {"Person", "Person:id="}


@pytest.mark.parametrize(
    "rows",
    [Rows({"id": [2], "name": "Bo"}), Rows({"name": "Bo"}), Rows(*({"id": n} for n in range(MAX_TAGS + 1))), object()],
    ids=["a key without a tag", "no column", "too many", "no driver's result"],
)
def test_nodes_that_it_does_not_show_are_all_of_the_label(graph: Graph, rows: Any) -> None:
    assert "Person" in graph.tags("indexed onehop", rows, id=1)


def test_a_plan_is_asked_for_once_and_again_after_a_while(graph: Graph) -> None:
    for number in range(3):
        graph.tags("indexed point", id=number)
    assert graph.asked == 1
    graph.now += PLAN_SECONDS
    graph.tags("indexed point", id=3)
    assert graph.asked == 2


def test_another_length_of_a_list_may_have_another_plan(graph: Graph) -> None:
    graph.tags("indexed in", ids=[1])
    graph.tags("indexed in", ids=[1, 2])
    assert graph.asked == 2


def test_what_can_t_be_explained_has_no_tags_and_is_named(graph: Graph, caplog: pytest.LogCaptureFixture) -> None:
    graph.error = ClientError("no EXPLAIN here")
    assert graph.tags("indexed point", id=1) == set()
    graph.tags("indexed point", id=2)
    (record,) = caplog.records
    assert "friends_of: the change feed does not see all" in record.message
    assert "no EXPLAIN here" in record.message


def test_each_query_of_a_text_is_named(graph: Graph, caplog: pytest.LogCaptureFixture) -> None:
    for query in ("friends_of", "names_of", "names_of"):
        graph.plans.reads(query).note(PLANS["indexed rand"]["cypher"], {}, Rows(), graph.explain)  # type: ignore[arg-type]
    assert graph.asked == 1
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["friends_of", "names_of"]


def test_a_graph_that_can_t_be_asked_fails_the_load(graph: Graph) -> None:
    graph.error = TransientError()
    with pytest.raises(TransientError):
        graph.tags("indexed point", id=1)


def entry(tags: tuple[str, ...], **fields: Any) -> Any:
    return SimpleNamespace(**({"tags": tags, "token": 2, "generation": 1} | fields))


def test_a_load_has_the_tags_of_the_entries_that_it_reads(graph: Graph, caplog: pytest.LogCaptureFixture) -> None:
    reads = graph.plans.reads("friends_of")
    reads.note_entry(make_key("ns", "city_of", None, 1), entry(("City:id=1", "City:*")))
    assert (reads.tags, reads.is_covered, reads.is_outdated) == (("City:id=1", "City:*"), True, False)
    assert not caplog.records


def test_a_load_that_reads_an_entry_without_tags_is_named(graph: Graph, caplog: pytest.LogCaptureFixture) -> None:
    reads = graph.plans.reads("friends_of")
    reads.note_entry(make_key("ns", "city_of", None, 1), entry(()))
    assert not reads.is_covered
    assert "friends_of" in caplog.text
    assert "it reads city_of, whose entry has no tags" in caplog.text


def test_entries_that_a_loader_s_own_threads_read_count_for_each_load_in_progress(graph: Graph) -> None:
    loads = [graph.plans.reads(name) for name in ("friends_of", "names_of", "over")]

    def read(tag: str) -> None:
        for follow in followers:
            follow(make_key("ns", "city_of", None, 1), entry((tag,)))

    with ThreadPoolExecutor(1) as threads:
        with following_entries(loads[2]):
            read("own")
        with following_entries(loads[0]), following_entries(loads[1]):
            read("own")
            threads.submit(read, "of a thread").result()
            with following_entries(None):
                read("of a load within that needs no tags")
        threads.submit(read, "later").result()
    assert [load.tags for load in loads] == [("of a thread",), ("own", "of a thread"), ("own",)]


def test_that_more_gaps_are_not_logged_is_said(
    graph: Graph, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loads_module, "MAX_PLANS", 2)
    for why in "abc":
        graph.plans.warn("friends_of", why)
    assert len(caplog.records) == 3
    assert "further ones are not logged" in caplog.text


def test_a_load_that_reads_an_invalidated_entry_is_outdated(graph: Graph) -> None:
    reads = graph.plans.reads("friends_of")
    reads.note_entry(make_key("ns", "city_of", None, 1), entry(("City",), generation=3))
    assert reads.is_outdated
