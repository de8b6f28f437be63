"""Dependencies that are found in plans which Neo4j 5.26 has made: with indexes, of a small graph and of an empty one.

They are written as tags, with the parameter that gives keys or the column that shows them in the keys' place.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from refresher.feed.auto.dependencies import Dependency
from refresher.feed.auto.expressions import unquoted
from refresher.feed.auto.plans import dependencies_of
from refresher.feed.watches import Watches

PLANS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("plans.json").read_text(encoding="utf-8"))
WATCHES = Watches({"Person": "id", "Movie": "id"}, {"KNOWS", "LIKES"})

EXPECTED = [
    ("indexed point", "Person:id=$id", ""),
    ("indexed onehop", "KNOWS@Person:id=$id Person:id=id", ""),
    ("indexed onehop_nolabel", "KNOWS@Person:id=$id", "f may be any node: give it a label"),
    ("indexed onehop_nodes", "KNOWS@Person:id=$id Person:id=f", ""),
    ("indexed onehop_props", "KNOWS@Person:id=$id Person:id=id", ""),
    ("indexed onehop_limit", "KNOWS@Person:id=$id Person", ""),
    ("indexed onehop_filter", "KNOWS@Person:id=$id Person", ""),
    ("indexed onehop_count", "KNOWS@Person:id=$id", ""),
    ("indexed onehop_count_label", "KNOWS@Person:id=$id", ""),
    ("indexed onehop_movie", "LIKES@Person:id=$id Movie:id=id", ""),
    ("indexed twohop", "KNOWS KNOWS@Person:id=$id Person", ""),
    ("indexed khop", "KNOWS Person:id=$id", ""),
    ("indexed shortest", "", "the function nodes()"),
    ("indexed allshortest", "KNOWS Person:id=$a Person:id=$b", ""),
    ("indexed count", "Person", ""),
    ("indexed countrel", "KNOWS", ""),
    ("indexed topk", "KNOWS Person", ""),
    ("indexed optional", "LIKES@Person:id=$id Movie Person:id=$id", ""),
    ("indexed opt_count", "KNOWS@Person:id=$id Person:id=$id", ""),
    ("indexed filter", "Person", ""),
    ("indexed union", "Movie:id=$b Person:id=$a", ""),
    ("indexed comp", "KNOWS@Person:id=$id Person:id=$id", "f may be any node: give it a label"),
    ("indexed rollup", "KNOWS@Person:id=$id Person:id=$id Person:id=names[].id", ""),
    ("indexed degree", "", "a relationship without a type: name its type, as in -[:KNOWS]-"),
    ("indexed degree_t", "KNOWS@Person:id=$id Person:id=$id", ""),
    ("indexed in", "Person:id=$ids[]", ""),
    ("indexed unwind", "Person:id=$ids[]", ""),
    ("indexed param_list", "Person:id=$rows[].id", ""),
    ("indexed literal", "Person", ""),
    ("indexed coalesce", "Person", ""),
    ("indexed all", "", "all nodes, whatever their label: name one"),
    ("indexed proc", "", "the procedure db.labels"),
    ("indexed exists", "KNOWS@Person:id=$id Person:id=$id", ""),
    ("indexed time", "", "datetime(), which is another one each time"),
    ("indexed return_node", "Person:id=$id", ""),
    ("indexed rename", "KNOWS@Person:id=$id Person:id=$id Person:id=id", ""),
    ("indexed rename_swap", "KNOWS Person Person:id=$id Person:id=id", ""),
    ("indexed shadow", "Person Person:id=$id", ""),
    ("indexed call_sub", "KNOWS@Person:id=$id Person:id=fid", ""),
    ("indexed labels_or", "Movie Person", ""),
    ("indexed elementid", "", "p may be any node: give it a label"),
    (
        "indexed shortest5",
        "",
        "the plan's StatefulShortestPath(Into) SHORTEST 1 (a) ((`anon_19`)-[`anon_20`]-(`anon_21`)){1, } (b) ",
    ),
    ("indexed untyped", "", "a relationship without a type: name its type, as in -[:KNOWS]-"),
    ("indexed apocfn", "", "the function apoc.text.join()"),
    ("indexed startnode", "", "the function endNode()"),
    ("indexed rand", "", "rand(), which is another one each time"),
    ("indexed hop_label_not", "KNOWS@Person:id=$id Person:id=id", ""),
    ("indexed types2", "KNOWS@Person:id=$id LIKES@Person:id=$id", ""),
    ("indexed reltype_scan", "KNOWS", ""),
    ("indexed path", "KNOWS@Person:id=$id Person Person:id=$id", ""),
    ("indexed quoted", "", "a name of other characters than letters, digits and _"),
    ("indexed id_of_other", "Person Person:id=$a", ""),
    ("indexed load", "", "the plan's LoadCSV l"),
    ("indexed with_limit", "KNOWS@Person:id=$id Person:id=$id Person:id=id", ""),
    ("indexed union_all", "KNOWS@Person:id=$a KNOWS@Person:id=$b Person", ""),
    ("small point", "Person:id=$id", ""),
    ("small onehop", "KNOWS@Person:id=$id Person:id=id", ""),
    ("small or", "Person", ""),
    ("small not", "Person", ""),
    ("small exists", "KNOWS@Person:id=$id Person:id=$id", ""),
    ("small fof_friends", "KNOWS@Person:id=$b Person:id=$a Person:id=$b", ""),
    ("small unwind", "Person:id=$ids[]", ""),
    ("small shadow", "Person Person:id=$id", ""),
    ("small in", "Person:id=$ids[]", ""),
    ("small reverse", "KNOWS@Person:id=$id Person:id=id", ""),
    ("empty onehop", "KNOWS@Person:id=$id Person:id=id", ""),
    ("empty twohop", "KNOWS KNOWS@Person:id=$id Person", ""),
]


@pytest.mark.parametrize(("name", "dependencies", "gaps"), EXPECTED, ids=[name for name, _, _ in EXPECTED])
def test_a_plan_tells_what_its_result_depends_on(name: str, dependencies: str, gaps: str) -> None:
    found = dependencies_of(PLANS[name]["cypher"], PLANS[name]["plan"], WATCHES)
    assert " ".join(sorted(map(str, found.found))) == dependencies
    assert "; ".join(found.gaps) == gaps


def test_each_recorded_plan_is_looked_at() -> None:
    assert sorted(PLANS) == sorted(name for name, _, _ in EXPECTED)


@pytest.mark.parametrize("name", PLANS)
def test_what_is_not_watched_is_a_gap_that_names_it(name: str) -> None:
    found = dependencies_of(PLANS[name]["cypher"], PLANS[name]["plan"], Watches())
    assert not found.found
    assert found.gaps


def test_a_coarse_dependency_says_why() -> None:
    found = dependencies_of(PLANS["indexed onehop_limit"]["cypher"], PLANS["indexed onehop_limit"]["plan"], WATCHES)
    assert [(str(one), one.why) for one in found.found if one.why] == [
        ("Person", "f is filtered, limited or aggregated, or the rows do not show its id")
    ]


@pytest.mark.parametrize("name", PLANS)
def test_each_coarse_dependency_says_why(name: str) -> None:
    found = dependencies_of(PLANS[name]["cypher"], PLANS[name]["plan"], WATCHES)
    assert [str(one) for one in found.found if not (one.key or one.shown or one.why)] == []


def plan(*operators: tuple[str, str]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for kind, details in reversed(operators):
        made = {"operatorType": f"{kind}@neo4j", "args": {"Details": details}, "children": [made] if made else []}
    return made


SEEK = ("NodeUniqueIndexSeek", "UNIQUE p:Person(id) WHERE id = $id")
EXPAND = ("Expand(All)", "(p)-[r:KNOWS]-(f)")
HOP = (("Filter", "f:Person"), EXPAND, SEEK)


@pytest.mark.parametrize(
    ("details", "why"),
    [
        ("gds.util.asNode(p) AS x", "the function gds.util.asNode()"),
        ("nodes(p) AS x", "the function nodes()"),
        ("(p)-[anon_0*]-(q) AS x", "the nodes within a path"),
        ("cache[my p.id] AS x", "a name of other characters"),
        ("p:$any($l) AS x", "labels that are not named one by one"),
        ("date.truncate('day', p.born) AS x", "date.truncate()"),
        ("getDegree((p)-->()) AS x", "a relationship without a type"),
        ("CASE WHEN EXISTS { MATCH (p)-[`r`:KNOWS]->(`q`) } THEN 1 END AS x", "a subquery within an expression"),
        ("CASE WHEN EXISTS { MATCH `w` = (p)-[`r`]->(`q`) } THEN 1 END AS x", "a subquery within an expression"),
        ("CASE WHEN $t THEN [(p)-[`r`:KNOWS]->(`q`) | `q`.name] END AS x", "a subquery within an expression"),
        ("CASE WHEN $t THEN [`w` = (p)<-[`r`]-(`q`) | 1] END AS x", "a subquery within an expression"),
        ("any(y IN $l WHERE exists((p)-[`r`:KNOWS]->(`q`))) AS x", "a subquery within an expression"),
    ],
)
def test_an_expression_that_is_not_understood_is_a_gap(details: str, why: str) -> None:
    found = dependencies_of("MATCH", plan(("ProduceResults", "x"), ("Projection", details), SEEK), WATCHES)
    assert any(why in gap for gap in found.gaps), found.gaps


def test_a_condition_on_a_value_of_the_same_name_is_none_on_the_node() -> None:
    operators = (
        ("ProduceResults", "x"),
        ("Projection", "p.x AS x"),
        ("Filter", "p.id = $id"),
        ("Projection", "{id: p.age, x: p.name} AS p"),
        ("NodeByLabelScan", "p:Person"),
    )
    assert dependencies_of("MATCH", plan(*operators), WATCHES).found == (Dependency("Person"),)


def test_a_key_that_is_computed_from_a_row_is_not_known() -> None:
    operators = (
        ("ProduceResults", "x"),
        ("Projection", "p.name AS x"),
        ("Filter", "p.id = i"),
        ("Apply", ""),
        ("Projection", "i + $autoint_0 AS i"),
        ("Unwind", "$ids AS i"),
    )
    made = plan(*operators)
    made["children"][0]["children"][0]["children"][0]["children"].append(plan(("NodeByLabelScan", "p:Person")))
    assert dependencies_of("MATCH", made, WATCHES).found == (Dependency("Person"),)


@pytest.mark.parametrize(
    "operators",
    [
        (("Projection", "f.id AS id"), ("Filter", "f:Movie"), ("Expand(All)", "(p)-[s:LIKES]->(f)")),
        (("Expand(All)", "(p)-[s:LIKES]->(id)"), ("Projection", "f.id AS id")),
    ],
    ids=["the node's", "the column's"],
)
def test_a_name_that_is_given_again_shows_nothing(operators: tuple[tuple[str, str], ...]) -> None:
    below = (("Projection", "f.name AS x"), ("Filter", "f:Person"), ("Expand(All)", "(p)-[r:KNOWS]-(f)"), SEEK)
    found = dependencies_of("MATCH", plan(("ProduceResults", "id, x"), *operators, *below), WATCHES).found
    assert Dependency("Person", key_property="id") in found


@pytest.mark.parametrize(
    ("leaf", "dependency"),
    [
        (("NodeByLabelScan", "f:Person"), "Person:id=id"),
        (("NodeIndexSeekByRange", "RANGE INDEX f:Person(age) WHERE age > $age"), "Person"),
        (("NodeIndexScan", "RANGE INDEX f:Person(age) WHERE age IS NOT NULL"), "Person"),
    ],
)
def test_a_neighbour_of_a_known_node_is_shown_where_a_scan_finds_it(leaf: tuple[str, str], dependency: str) -> None:
    operators = (
        ("ProduceResults", "id"),
        ("Projection", "f.id AS id"),
        ("Filter", "p.id = $id AND p:Person"),
        ("Expand(All)", "(f)-[r:KNOWS]-(p)"),
        leaf,
    )
    found = dependencies_of("MATCH", plan(*operators), WATCHES).found
    assert {str(one) for one in found} == {"KNOWS@Person:id=$id", dependency}


@pytest.mark.parametrize(
    ("operators", "is_dependency"),
    [
        ((EXPAND, SEEK), False),
        ((EXPAND, ("Filter", "p.id = $id"), ("NodeByLabelScan", "p:Person")), False),
        (
            (
                ("Filter", "p.id = $id AND p:Person"),
                ("Expand(All)", "(f)-[r:KNOWS]-(p)"),
                ("NodeUniqueIndexSeek", "UNIQUE f:Person(id) WHERE id = $b"),
            ),
            False,
        ),
        ((("Projection", "p.name AS name"), EXPAND, SEEK), True),
        ((EXPAND, ("Filter", "p.id = $id AND p.age > $age"), ("NodeByLabelScan", "p:Person")), True),
        ((EXPAND, ("Filter", "p.id = $id OR p.age = $age"), SEEK), True),
        ((EXPAND, ("Filter", "NOT p:Movie"), SEEK), True),
        ((("OptionalExpand(All)", "(p)-[r:KNOWS]-(f)"), SEEK), True),
        ((("VarLengthExpand(All)", "(p)-[r:KNOWS*0..2]-(f)"), SEEK), True),
        ((EXPAND, ("Limit", "1"), SEEK), True),
        ((("Expand(All)", "(f)-[s:RATED]-(m)"), EXPAND, SEEK), True),
    ],
    ids=repr,
)
def test_a_known_node_is_a_dependency_unless_its_relationships_tell_all(
    operators: tuple[tuple[str, str], ...], is_dependency: bool
) -> None:
    counted = plan(("ProduceResults", "n"), ("EagerAggregation", "count(*) AS n"), *operators)
    found = dependencies_of("MATCH", counted, WATCHES).found
    assert ("Person:id=$id" in map(str, found)) is is_dependency


@pytest.mark.parametrize(
    "above",
    [
        ("Top", "id ASC LIMIT 2"),
        ("Filter", "name = $name"),
        ("Unwind", "$more AS more"),
        ("EagerAggregation", "count(name) AS id"),
        ("SemiApply", ""),
    ],
    ids=lambda above: above[0],
)
def test_a_row_that_may_go_once_it_is_read_shows_nothing(above: tuple[str, str]) -> None:
    hop = (("Filter", "f:Person"), ("Expand(All)", "(p)-[r:KNOWS]-(f)"), SEEK)
    operators = (("ProduceResults", "id"), above, ("Projection", "f.id AS id, f.name AS name"), *hop)
    found = dependencies_of("MATCH", plan(*operators), WATCHES).found
    assert Dependency("Person", key_property="id") in found


@pytest.mark.parametrize(
    "shown",
    ["f{id: $autostring_0 + f.id, .*} AS f", "{id: f.id, id: $autoint_0, n: f.name} AS f"],
    ids=["of all properties", "given twice"],
)
def test_a_map_whose_key_is_another_value_shows_nothing(shown: str) -> None:
    operators = (("ProduceResults", "f"), ("Projection", shown), *HOP)
    found = dependencies_of("MATCH", plan(*operators), WATCHES).found
    assert Dependency("Person", key_property="id") in found


@pytest.mark.parametrize(
    ("condition", "dependency"),
    [
        ("CASE WHEN $t AND p.id = $id AND p.age > $autoint_0 THEN true ELSE p.age = $autoint_1 END", "Person"),
        ("p.id = $id AND CASE WHEN $t AND p.age > $autoint_0 THEN true ELSE $f END", "Person:id=$id"),
    ],
)
def test_what_stands_within_a_case_is_no_condition(condition: str, dependency: str) -> None:
    operators = (("ProduceResults", "n"), ("Projection", "p.name AS n"), ("Filter", condition))
    found = dependencies_of("MATCH", plan(*operators, ("NodeByLabelScan", "p:Person")), WATCHES).found
    assert " ".join(map(str, found)) == dependency


@pytest.mark.parametrize(
    "outer",
    [("Unwind", "$rows AS p"), ("DirectedRelationshipTypeScan", "(a)-[p:KNOWS]->(b)")],
    ids=["a value", "a relationship"],
)
def test_a_condition_on_what_has_the_same_name_outside_of_a_subquery_is_none(outer: tuple[str, str]) -> None:
    made = plan(("ProduceResults", "n"), ("Filter", "p.id = $id"), ("Apply", ""), outer)
    inner = plan(("Projection", "p.name AS n"), ("NodeByLabelScan", "p:Person"))
    made["children"][0]["children"][0]["children"].append(inner)
    assert Dependency("Person") in dependencies_of("MATCH", made, WATCHES).found


def test_a_key_of_what_is_a_relationship_elsewhere_is_not_known() -> None:
    branches = [("Unwind", "$rows AS row"), ("Expand(All)", "(q)-[row:KNOWS]->(anon_1)")]
    made = plan(("ProduceResults", "n"), ("Union", ""))
    for branch in branches:
        found = plan(("Projection", "p.name AS n"), ("Apply", ""), branch)
        seek = plan(("NodeIndexSeek", "RANGE INDEX p:Person(id) WHERE id = row.id"))
        found["children"][0]["children"].append(seek)
        made["children"][0]["children"].append(found)
    assert Dependency("Person") in dependencies_of("MATCH", made, WATCHES).found


def test_a_name_that_is_not_understood_is_a_gap() -> None:
    operators = (("ProduceResults", "n"), ("Projection", "x€.name AS n"), ("Projection", "f AS x€"), *HOP)
    assert dependencies_of("MATCH", plan(*operators), WATCHES).gaps


@pytest.mark.parametrize("function", ["endNode", "gds.util.asNode"])
def test_a_function_is_none_that_a_node_has_the_name_of(function: str) -> None:
    name = function.partition(".")[0]
    operators = (("ProduceResults", "x"), ("Projection", f"{function}(s).age AS x"))
    hops = (("Expand(All)", f"(p)-[s:LIKES]->({name})"), ("Filter", f"{name}:Person"), *HOP[1:])
    found = dependencies_of("MATCH", plan(*operators, ("Filter", f"{name}:Person"), *hops), WATCHES)
    assert f"the function {function}()" in found.gaps


def test_a_column_is_not_understood_by_its_name() -> None:
    operators = (("ProduceResults", "`[(p)-[:KNOWS]->(q) | 1]`"), ("Projection", "p.x AS `[(p)-[:KNOWS]->(q) | 1]`"))
    assert not dependencies_of("MATCH", plan(*operators, SEEK), WATCHES).gaps


def test_a_name_in_backticks_may_have_some_of_its_own() -> None:
    assert [unquoted(name) for name in ("id", "`my id`", "```id`", "`a``b`")] == ["id", "my id", "`id", "a`b"]


def test_hops_of_a_node_that_an_expression_gives_are_any() -> None:
    operators = (
        ("ProduceResults", "n"),
        ("EagerAggregation", "count(f) AS n"),
        ("Expand(All)", "(p)-[anon_0:KNOWS]-(f)"),
        ("Projection", "head(ps) AS p"),
        ("EagerAggregation", "collect(p) AS ps"),
        SEEK,
    )
    assert Dependency("KNOWS", is_type=True) in dependencies_of("MATCH", plan(*operators), WATCHES).found
