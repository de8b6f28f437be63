"""The demo's queries on the real engines, compared with a plain Python computation over the same graph."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from neo4j import GraphDatabase

from refresher.demo import queries
from refresher.demo.graph import social_graph
from refresher.demo.graph.social_graph import SocialGraph, load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from neo4j import Driver

GRAPH = SocialGraph.generated(200, seed=11)
ISLANDS = ["Solo Allen 90000", "Solo Berg 90001"]
"""Two persons who know only each other: no path leads to them."""


@dataclass(frozen=True)
class Loaded:
    """A database that holds GRAPH, and who knows whom in it."""

    driver: Driver
    database: str
    friends: dict[str, set[str]]
    progress: list[int]

    def read(self, loader: Callable[..., Any], *args: object, **params: object) -> Any:
        with self.driver.session(database=self.database, default_access_mode="READ") as session:
            return session.execute_read(lambda tx: loader(tx, *args, **params))

    def write(self, cypher: Any, **params: Any) -> None:
        with self.driver.session(database=self.database) as session:
            session.run(cypher, **params).consume()


@pytest.fixture(scope="module", params=["arcadedb", "neo4j_server"])
def loaded(request: pytest.FixtureRequest) -> Iterator[Loaded]:
    server = request.getfixturevalue(request.param)
    friends: dict[str, set[str]] = defaultdict(set)
    for source, target in zip(GRAPH.sources.tolist(), GRAPH.targets.tolist(), strict=True):
        friends[GRAPH.names[source]].add(GRAPH.names[target])
        friends[GRAPH.names[target]].add(GRAPH.names[source])
    with GraphDatabase.driver(server.bolt_uri, auth=(server.user, server.password)) as driver:
        result = Loaded(driver, server.database, friends, [])
        result.write("MATCH (p:Person) DETACH DELETE p")
        with patch.object(social_graph, "BATCH_ROWS", 300):
            load(driver, server.database, GRAPH, result.progress.append)
        result.write(
            "CREATE (a:Person {id: 90000, name: $a, version: 0}), (b:Person {id: 90001, name: $b, version: 0}) "
            "CREATE (a)-[:KNOWS]->(b) CREATE (b)-[:KNOWS]->(a)",
            a=ISLANDS[0],
            b=ISLANDS[1],
        )
        yield result
        result.write("MATCH (p:Person) DETACH DELETE p")


def mutual_friends(friends: dict[str, set[str]], name: str) -> dict[str, int]:
    """Return {person two steps away: number of mutual friends}."""
    counts: dict[str, int] = defaultdict(int)
    for friend in friends[name]:
        for other in friends[friend] - friends[name] - {name}:
            counts[other] += 1
    return counts


def steps(friends: dict[str, set[str]], source: str) -> dict[str, int]:
    """Return {person: length of a shortest path from source}, by breadth-first search."""
    found = {source: 0}
    waiting = deque([source])
    while waiting:
        name = waiting.popleft()
        for friend in friends[name] - found.keys():
            found[friend] = found[name] + 1
            waiting.append(friend)
    return found


def test_the_load_reports_its_progress_and_writes_everything(loaded: Loaded) -> None:
    assert loaded.progress[-1] == GRAPH.persons + GRAPH.edges
    assert len(loaded.progress) > 2
    assert loaded.progress == sorted(set(loaded.progress))
    count = "MATCH (a:Person)-[k:KNOWS]->(b:Person) WHERE a.id < $n AND b.id < $n RETURN count(k)"  # others load, too
    assert loaded.read(lambda tx: tx.run(count, n=GRAPH.persons).single().value()) == GRAPH.edges


def test_profile(loaded: Loaded) -> None:
    for name, degree in zip(GRAPH.names, GRAPH.degrees.tolist(), strict=True):
        assert loaded.read(queries.profile, name) == {"name": name, "version": 0, "degree": degree}
    assert loaded.read(queries.profile, "Nobody") is None
    loaded.write("MATCH (p:Person {name: $name}) SET p.version = p.version + 1", name=ISLANDS[1])
    assert loaded.read(queries.profile, ISLANDS[1]) == {"name": ISLANDS[1], "version": 1, "degree": 2}


def test_friends_of_friends(loaded: Loaded) -> None:
    for name in GRAPH.names:
        expected = sorted(mutual_friends(loaded.friends, name))
        assert loaded.read(queries.friends_of_friends, name) == [{"name": other} for other in expected[:20]]
        assert loaded.read(queries.friends_of_friends, name, limit=1_000) == [{"name": other} for other in expected]


def test_recommend(loaded: Loaded) -> None:
    for name in GRAPH.names:
        counts = mutual_friends(loaded.friends, name)
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        expected = [{"name": other, "mutual": mutual} for other, mutual in ranked]
        assert loaded.read(queries.recommend, name) == expected[:10]
        assert loaded.read(queries.recommend, name, limit=1_000) == expected


@pytest.mark.parametrize("loader", [queries.friends_of_friends, queries.recommend])
def test_a_person_without_friends_of_friends_gets_an_empty_list(loaded: Loaded, loader: Callable[..., Any]) -> None:
    assert loaded.read(loader, ISLANDS[0]) == []
    assert loaded.read(loader, "Nobody") == []


@pytest.mark.parametrize("loader", [queries.friends_of_friends, queries.recommend])
@pytest.mark.parametrize("limit", [0, -1, 1_001])
def test_a_limit_out_of_bounds_is_refused(loaded: Loaded, loader: Callable[..., Any], limit: int) -> None:
    with pytest.raises(ValueError, match=r"limit must be from 1 to 1,000"):
        loaded.read(loader, GRAPH.names[0], limit=limit)


def test_shortest_path(loaded: Loaded) -> None:
    for source in GRAPH.names[:8]:
        distances = steps(loaded.friends, source)
        for target in GRAPH.names[::7]:
            path = loaded.read(queries.shortest_path, source, target)
            if distances.get(target, 99) > queries.MAX_STEPS:
                assert path == []
                continue
            assert len(path) == distances[target] + 1
            assert (path[0], path[-1]) == (source, target)
            assert all(after in loaded.friends[before] for before, after in pairwise(path))


def test_shortest_path_is_empty_where_there_is_none(loaded: Loaded) -> None:
    assert loaded.read(queries.shortest_path, GRAPH.names[0], ISLANDS[0]) == []
    assert loaded.read(queries.shortest_path, GRAPH.names[0], "Nobody") == []
    assert loaded.read(queries.shortest_path, "Nobody", "Nobody") == []
    assert loaded.read(queries.shortest_path, GRAPH.names[0], GRAPH.names[0]) == [GRAPH.names[0]]


def test_shortest_path_is_bounded(loaded: Loaded) -> None:
    chain = [f"Chain {number}" for number in range(queries.MAX_STEPS + 2)]
    for number, name in enumerate(chain):
        loaded.write("CREATE (:Person {id: $id, name: $name, version: 0})", id=91_000 + number, name=name)
    for before, after in pairwise(chain):
        loaded.write(
            "MATCH (a:Person {name: $before}), (b:Person {name: $after}) CREATE (b)-[:KNOWS]->(a)",
            before=before,
            after=after,
        )
    assert loaded.read(queries.shortest_path, chain[0], chain[-2]) == chain[:-1]
    assert loaded.read(queries.shortest_path, chain[0], chain[-1]) == []


def test_degree_queries_count_relationships_in_both_directions(loaded: Loaded) -> None:
    def degree(tx: Any, cypher: str, **params: object) -> int:
        return int(tx.run(cypher, **params).single(strict=True)[0])

    for name, expected in zip(GRAPH.names[:20], GRAPH.degrees.tolist(), strict=False):
        assert loaded.read(degree, queries.DEGREE, name=name) == expected
        assert loaded.read(degree, queries.DEGREE_OF_SOURCE, source=name, target="unused") == expected


def test_recommend_leaves_hubs_out(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    degree = dict(zip(GRAPH.names, GRAPH.degrees.tolist(), strict=True))
    name = max(GRAPH.names, key=lambda person: len(loaded.friends[person]))
    monkeypatch.setattr(queries, "MAX_FANOUT", 10)
    expected: dict[str, int] = defaultdict(int)
    for friend in loaded.friends[name]:
        if degree[friend] <= 10:
            for other in loaded.friends[friend] - loaded.friends[name] - {name}:
                expected[other] += 1
    found = loaded.read(queries.recommend, name, limit=1_000)
    assert {row["name"]: row["mutual"] for row in found} == expected
