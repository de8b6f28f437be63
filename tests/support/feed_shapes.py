"""Queries of twelve shapes, writes of every kind, and three graphs, for the oracle of tags that plans give."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

KEYS: Final = 60

SHAPES: Final[dict[str, str]] = {
    "point: plain": "MATCH (p:Person {id:$id}) RETURN p.name AS name, p.age AS age",
    "point: node": "MATCH (p:Person {id:$id}) RETURN p",
    "point: labels": "MATCH (p:Person {id:$id}) RETURN labels(p) AS l, p:Movie AS m, p:City AS c",
    "point: decimal key": "MATCH (p:Person {id:$decimal}) RETURN p.name AS name",
    "point: movie": "MATCH (m:Movie {id:$id}) RETURN m.title AS t",
    "point: of a list": "MATCH (p:Person) WHERE p.id IN $ids RETURN p.name, p.id",
    "point: properties": "MATCH (p:Person {id:$id}) RETURN properties(p) AS x, keys(p) AS k",
    "point: key of another": "MATCH (p:Person {id:$a}) MATCH (q:Person {id:p.age}) RETURN q.name",
    "point: name reused": "MATCH (p:Person {id:$id}) WITH p.name AS x MATCH (p:Person) WHERE p.name=x RETURN p.age",
    "point: name reused, maximum": (
        "MATCH (p:Person) WITH max(p.age) AS x MATCH (p:Person {id:$id}) RETURN p.age = x AS t"
    ),
    "point: name reused, filter": (
        "MATCH (p:Person) WHERE p.age < 20 WITH p.name AS x MATCH (p:Person {id:$id}) WHERE p.name = x RETURN p.id"
    ),
    "point: name reused, map": "MATCH (p:Person) WITH {id: p.age, x: p.name} AS p WHERE p.id = $age RETURN p.x",
    "one hop: plain": "MATCH (:Person {id:$id})-[:KNOWS]-(f:Person) RETURN f.id AS id, f.name AS name, f.age AS age",
    "one hop: out": (
        "MATCH (p:Person {id:$id})-[r:KNOWS]->(f:Person) RETURN f.id AS id, f.name AS name, f.age AS age, r.since AS "
        "since, p.age AS a"
    ),
    "one hop: nodes": "MATCH (:Person {id:$id})-[:KNOWS]-(f:Person) RETURN f",
    "one hop: sorted": (
        "MATCH (:Person {id:$id})-[:KNOWS]-(f:Person) RETURN f.id AS id, f.name AS name, f.age AS age ORDER BY name, id"
    ),
    "one hop: other label": (
        "MATCH (:Person {id:$id})-[:LIKES]->(m:Movie) RETURN m.id AS id, m.title AS title, m.age AS age"
    ),
    "one hop: not a label": (
        "MATCH (:Person {id:$id})-[:KNOWS]->(f:Person) WHERE NOT f:Movie RETURN f.id AS id, f.name AS name, f.age AS "
        "age"
    ),
    "one hop: two types": (
        "MATCH (:Person {id:$id})-[:KNOWS|LIKES]->(f:Person|Movie) RETURN f.id AS id, f.name AS name, f.age AS age"
    ),
    "one hop: filtered relationship": (
        "MATCH (:Person {id:$id})-[r:KNOWS]-(f:Person) WHERE r.since>$age RETURN f.id AS id, f.name AS name, f.age AS "
        "age"
    ),
    "one hop: distinct": (
        "MATCH (:Person {id:$id})-[:KNOWS]-(f:Person) RETURN DISTINCT f.id AS id, f.name AS name, f.age AS age"
    ),
    "one hop: grouped": (
        "MATCH (:Person {id:$id})-[r:KNOWS]-(f:Person) RETURN f.id AS id, f.name AS name, f.age AS age, max(r.since) "
        "AS since"
    ),
    "one hop: collected": "MATCH (:Person {id:$id})-[:KNOWS]-(f:Person) RETURN collect(f) AS found",
    "one hop: pair": (
        "MATCH (a:Person {id:$a})-[r:KNOWS]-(b:Person {id:$b}) RETURN a.name, a.age, b.name, b.age, r.since"
    ),
    "one hop: reverse": (
        "MATCH (f:Person)-[:KNOWS]->(p:Person {id:$id}) RETURN f.id AS id, f.name AS name, f.age AS age"
    ),
    "one hop: of rows": (
        "UNWIND $rows AS row MATCH (p:Person {id:row.id})-[:KNOWS]->(f:Person) RETURN row.id AS i, f.id AS id, f.age "
        "AS a"
    ),
    "one hop: renamed": (
        "MATCH (p:Person {id:$id}) WITH p AS q MATCH (q)-[:KNOWS]->(f:Person) RETURN f.id AS id, f.name AS name, "
        "f.age AS age"
    ),
    "one hop: name reused": (
        "MATCH (p:Person {id:$id}) MATCH (q:Person {age:$age}) WITH q AS p MATCH (p)-[:KNOWS]->(f:Person) RETURN f.id "
        "AS id, f.name AS name"
    ),
    "one hop: subquery": (
        "MATCH (p:Person {id:$id}) CALL { WITH p MATCH (p)-[:KNOWS]->(f:Person) RETURN f.id AS fid, f.name AS fn } "
        "RETURN fid, fn"
    ),
    "one hop: maps": "MATCH (p:Person {id:$id})-[:KNOWS]->(f:Person) RETURN f {.id, .name, .age} AS f",
    "one hop: path": "MATCH q=(p:Person {id:$id})-[:KNOWS]->(f:Person) RETURN q",
    "one hop: to itself": "MATCH (p:Person {id:$id})-[r:KNOWS]->(p) RETURN count(r) AS n",
    "one hop: exists": "MATCH (p:Person {id:$id}) RETURN EXISTS { (p)-[:KNOWS]->(:Person {id:$b}) } AS e",
    "one hop: not exists": "MATCH (p:Person {id:$id}) WHERE NOT (p)-[:LIKES]->() RETURN p.name",
    "one hop: not exists, label": "MATCH (p:Person {id:$id}) WHERE NOT (p)-[:LIKES]->(:Movie) RETURN p.name",
    "one hop: exists in CASE": (
        "MATCH (p:Person {id:$id}) RETURN CASE WHEN EXISTS { (p)-[:KNOWS]->(f:Person WHERE f.age > 30) } THEN 1 ELSE "
        "2 END AS e"
    ),
    "k hops: two": "MATCH (p:Person {id:$id})-[:KNOWS]-()-[:KNOWS]-(o:Person) WHERE o<>p RETURN DISTINCT o.name",
    "k hops: two, shown": (
        "MATCH (p:Person {id:$id})-[:KNOWS]->(:Person)-[:LIKES]->(m:Movie) RETURN m.id AS id, m.title AS t"
    ),
    "k hops: up to three": "MATCH (p:Person {id:$id})-[:KNOWS*1..3]-(o) RETURN count(DISTINCT o) AS n",
    "k hops: in between": (
        "MATCH (a:Person {id:$a})-[:KNOWS]-(m:Person)-[:KNOWS]-(b:Person {id:$b}) RETURN m.id AS id, m.name AS name"
    ),
    "k hops: triangle": "MATCH (a:Person {id:$id})-[:KNOWS]-(b)-[:KNOWS]-(c)-[:KNOWS]-(a) RETURN count(*) AS n",
    "k hops: from a list": (
        "MATCH (p:Person) WHERE p.age=$age WITH collect(p) AS ps UNWIND ps AS p MATCH (p)-[:LIKES]->(m:Movie) RETURN "
        "m.id AS id, m.title AS t"
    ),
    "shortest path: plain": (
        "MATCH (a:Person {id:$a}),(b:Person {id:$b}) WHERE a<>b MATCH p=shortestPath((a)-[:KNOWS*..4]-(b)) RETURN "
        "length(p) AS n"
    ),
    "count: nodes": "MATCH (p:Person) RETURN count(p) AS n",
    "count: relationships": "MATCH (:Person)-[r:KNOWS]->() RETURN count(r) AS n",
    "count: of one": "MATCH (:Person {id:$id})-[:KNOWS]-(f) RETURN count(*) AS n",
    "count: of one, label": "MATCH (:Person {id:$id})-[:KNOWS]-(f:Person) RETURN count(f) AS n",
    "count: average": "MATCH (p:Person) RETURN avg(p.age) AS a, min(p.name) AS b",
    "count: sum in a subquery": (
        "MATCH (p:Person {id:$id}) CALL { WITH p MATCH (p)-[:KNOWS]->(f:Person) RETURN sum(f.age) AS s } RETURN "
        "p.name, s"
    ),
    "top k: degrees": "MATCH (p:Person)-[:KNOWS]-(f) RETURN p.id AS id, count(f) AS n ORDER BY n DESC, id LIMIT 3",
    "top k: property": "MATCH (p:Person) RETURN p.id AS id, p.age AS age ORDER BY age DESC, id LIMIT 3",
    "top k: of one": (
        "MATCH (:Person {id:$id})-[:KNOWS]-(f:Person) RETURN f.id AS id, f.name AS name, f.age AS age ORDER BY name, "
        "id LIMIT 2"
    ),
    "top k: of a list": (
        "MATCH (p:Person) WHERE p.id IN $ids RETURN p.id AS id ORDER BY COUNT { (p)-[:KNOWS]-() } DESC, id"
    ),
    "optional match: plain": (
        "MATCH (p:Person {id:$id}) OPTIONAL MATCH (p)-[:LIKES]->(m:Movie) RETURN p.name, m.id AS id, m.title AS t"
    ),
    "optional match: maps": (
        "MATCH (p:Person {id:$id}) OPTIONAL MATCH (p)-[:LIKES]->(m:Movie) RETURN p.name AS n, collect(m {.id, "
        ".title}) AS t"
    ),
    "optional match: all properties": (
        "MATCH (p:Person {id:$id}) OPTIONAL MATCH (p)-[:LIKES]->(m:Movie) RETURN p.name AS n, collect({m: m {.*}, a: "
        "p.age}) AS t"
    ),
    "optional match: aggregated": (
        "MATCH (p:Person {id:$id}) OPTIONAL MATCH (p)-[:LIKES]->(m:Movie) RETURN p.name, collect(m.title) AS t"
    ),
    "optional match: counted": (
        "MATCH (p:Person {id:$id}) OPTIONAL MATCH (p)-[:LIKES]->(m) RETURN p.name AS n, count(m) AS c"
    ),
    "optional match: a given one": (
        "MATCH (p:Person) WHERE p.age=$age OPTIONAL MATCH (p)-[:LIKES]->(m:Movie {id:$b}) RETURN p.id, m.title"
    ),
    "label scan: both": "MATCH (p:Person:Movie) RETURN p.id",
    "label scan: either": "MATCH (p:Person|Movie) WHERE p.age = $age RETURN p.id",
    "label scan: not": "MATCH (p:Person&!Movie) WHERE p.age = $age RETURN p.id",
    "label scan: type": "MATCH (a)-[r:KNOWS]->(b) WHERE r.since = $age RETURN count(*) AS n",
    "property filter: range": "MATCH (p:Person) WHERE p.age > $age RETURN p.id, p.name",
    "property filter: equal": "MATCH (p:Person {name:$n}) RETURN p.id, p.age",
    "property filter: of one hop": (
        "MATCH (:Person {id:$id})-[:KNOWS]-(f:Person) WHERE f.age>$age RETURN f.id AS id, f.name AS name, f.age AS age"
    ),
    "property filter: of one hop, after WITH": (
        "MATCH (:Person {id:$id})-[:KNOWS]->(f:Person) WITH f.id AS id, f.name AS n, f.age AS a WHERE a > 30 RETURN "
        "id, n"
    ),
    "union: points": "MATCH (p:Person {id:$a}) RETURN p.name AS n UNION MATCH (m:Movie {id:$b}) RETURN m.title AS n",
    "union: hops": (
        "MATCH (p:Person {id:$a})-[:KNOWS]->(f:Person) RETURN f.id AS id UNION ALL MATCH (p:Person "
        "{id:$b})-[:LIKES]->(f:Movie) RETURN f.id AS id"
    ),
    "list comprehension: values": "MATCH (p:Person {id:$id}) RETURN [(p)-[:KNOWS]-(f:Person) | f.name] AS names",
    "list comprehension: maps": (
        "MATCH (p:Person {id:$id}) RETURN [(p)-[:KNOWS]-(f:Person) | f {.id, .name, .age}] AS found"
    ),
    "list comprehension: nodes": (
        "MATCH (p:Person {id:$id}) RETURN p.name AS name, [(p)-[:KNOWS]-(f:Person) | f] AS found"
    ),
    "list comprehension: size": "MATCH (p:Person {id:$id}) RETURN size([(p)-[:KNOWS]-(f) | 1]) AS n",
    "list comprehension: exists": (
        "MATCH (p:Person {id:$id}) RETURN [x IN range(1,5) WHERE EXISTS { (p)-[:KNOWS]->(:Person {age:x}) } | x] AS e"
    ),
    "list comprehension: of a list": (
        "MATCH (p:Person {id:$id}) WITH p MATCH (p)-[:KNOWS]->(f:Person) WITH collect(f) AS fs RETURN [x IN fs | "
        "x.name] AS n"
    ),
    "degree: plain": "MATCH (p:Person {id:$id}) RETURN COUNT { (p)-[:KNOWS]-() } AS d",
    "degree: two": "MATCH (p:Person {id:$id}) RETURN COUNT { (p)-[:KNOWS]->() } AS d, COUNT { (p)<-[:LIKES]-() } AS e",
}
ANCHORED: Final = frozenset(
    (
        "point: plain",
        "point: node",
        "point: labels",
        "point: decimal key",
        "point: movie",
        "point: of a list",
        "one hop: plain",
        "one hop: out",
        "one hop: nodes",
        "one hop: sorted",
        "one hop: other label",
        "one hop: not a label",
        "one hop: two types",
        "one hop: filtered relationship",
        "one hop: distinct",
        "one hop: grouped",
        "one hop: collected",
        "one hop: pair",
        "one hop: reverse",
        "one hop: of rows",
        "one hop: renamed",
        "one hop: subquery",
        "one hop: maps",
        "one hop: to itself",
        "one hop: exists",
        "one hop: not exists",
        "one hop: not exists, label",
        "count: of one",
        "count: of one, label",
        "top k: of a list",
        "optional match: plain",
        "optional match: maps",
        "optional match: all properties",
        "optional match: counted",
        "union: points",
        "list comprehension: maps",
        "list comprehension: nodes",
        "list comprehension: size",
        "degree: plain",
        "degree: two",
    )
)
"""Those whose plans begin at nodes that a parameter names, and name all that they read."""

WRITES: Final[dict[str, dict[str, int]]] = {
    "create": {
        "CREATE (:Person {id:$new,name:$n,age:$g})": 3,
        "CREATE (:Person {name:$n,age:$g})": 1,
        "CREATE (:Person:Movie {id:$new,name:$n,age:$g,title:$n})": 1,
        "CREATE (:Movie {id:$new,title:$n,age:$g})": 1,
        "CREATE (:City {id:$new,name:$n})": 1,
        "CREATE ({id:$new,name:$n,age:$g})": 1,
        "MATCH (a:Person {id:$a}) CREATE (a)-[:KNOWS {since:$g}]->(:Person {id:$new,name:$n,age:$g})": 3,
        "MATCH (a:Person {id:$a}) CREATE (a)<-[:KNOWS]-(:Person {name:$n})": 1,
        "MATCH (a:Person {id:$a}) CREATE (a)-[:KNOWS]->({id:$new,name:$n})": 1,
    },
    "create a relationship": {
        "MATCH (a:Person {id:$a}),(b:Person {id:$b}) CREATE (a)-[:KNOWS {since:$g}]->(b)": 8,
        "MATCH (a:Person {id:$a}),(b:Movie {id:$b}) CREATE (a)-[:LIKES]->(b)": 5,
        "MATCH (a:Person {id:$a}),(b:City) WITH a,b LIMIT 1 CREATE (a)-[:KNOWS]->(b)": 1,
        "MATCH (a {name:$n}),(b {name:$m}) WITH a,b LIMIT 1 CREATE (a)-[:KNOWS]->(b)": 1,
        "MATCH (a:Person {id:$a}),(b:Person {id:$b}) CREATE (a)-[:RATED]->(b)": 1,
        "MATCH (a:Person) WHERE a.id IS NULL WITH a LIMIT 1 MATCH (b:Person {id:$a}) CREATE (a)-[:KNOWS]->(b)": 1,
    },
    "delete a relationship": {
        "MATCH (a:Person {id:$a})-[r:KNOWS]-() WITH r LIMIT 1 DELETE r": 6,
        "MATCH (a:Person {id:$a})-[r:LIKES]-() WITH r LIMIT 1 DELETE r": 2,
        "MATCH (a:Person {id:$a})-[r:KNOWS]-() DELETE r": 1,
        "MATCH ()-[r:KNOWS]->() WHERE r.since=$g DELETE r": 1,
        "MATCH (a:Person {id:$a})-[r:KNOWS]->(b) DELETE r CREATE (b)-[:KNOWS]->(a)": 1,
    },
    "change a relationship": {
        "MATCH (a:Person {id:$a})-[r:KNOWS]-() SET r.since=$g": 4,
        "MATCH (a:Person {id:$a})-[r:KNOWS]-() REMOVE r.since": 1,
        "MATCH (a:Person {id:$a})-[r:KNOWS]-() SET r={x:1}": 1,
    },
    "delete": {
        "MATCH (a:Person {id:$a}) WHERE NOT (a)--() DELETE a": 2,
        "MATCH (a:Movie {id:$a}) WHERE NOT (a)--() DELETE a": 1,
        "MATCH (a:Person {id:$a}) OPTIONAL MATCH (a)-[r]-() DELETE r, a": 1,
    },
    "detach delete": {
        "MATCH (a:Person {id:$a}) DETACH DELETE a": 3,
        "MATCH (a:Person {name:$n}) DETACH DELETE a": 1,
        "MATCH (a:Movie {id:$a}) DETACH DELETE a": 1,
        "MATCH (a:City) WITH a LIMIT 1 DETACH DELETE a": 1,
        (
            "MATCH (a:Person {id:$a})-[r:KNOWS]->(b) WITH a,r,b LIMIT 1 DETACH DELETE a CREATE (:Person "
            "{id:$a,name:$n})-[:KNOWS]->(b)"
        ): 1,
    },
    "set a property": {
        "MATCH (a:Person {id:$a}) SET a.name=$n": 8,
        "MATCH (a:Person {id:$a}) SET a.age=$g": 8,
        "MATCH (a:Person {id:$a}) SET a.age=a.age": 1,
        "MATCH (a:Person {id:$a}) SET a += {name:$n, age:$g, z:1}": 2,
        "MATCH (a:Person) WHERE a.id IS NULL SET a.age=$g": 1,
        "MATCH (a) WHERE a.id=$a SET a.name=$n": 1,
        "MATCH (a:Movie {id:$a}) SET a.title=$n": 3,
        "MATCH (a:Movie {id:$a}) SET a.age=$g": 1,
        "MATCH (a:Person) WHERE a.age < 5 SET a.age = a.age+1": 1,
    },
    "set a property to null": {
        "MATCH (a:Person {id:$a}) REMOVE a.age": 2,
        "MATCH (a:Person {id:$a}) SET a.age=null": 1,
        "MATCH (a:Person {id:$a}) SET a += {name:null}": 1,
        "MATCH (a:Person {id:$a})-[r:KNOWS]-() SET r.since=null": 1,
    },
    "replace all properties": {
        "MATCH (a:Person {id:$a}) SET a = {id:$a, name:$n}": 2,
        "MATCH (a:Person {id:$a}) SET a = {name:$n}": 1,
        "MATCH (a:Movie {id:$a}) SET a = {id:$new, title:$n}": 1,
    },
    "change a key": {
        "MATCH (a:Person {id:$a}) REMOVE a.id": 1,
        "MATCH (a:Person {id:$a}) SET a.id=$new": 2,
        "MATCH (a:Person {id:$a}) SET a.id=toFloat($a)": 1,
        "MATCH (a:Person) WHERE a.id IS NULL WITH a LIMIT 1 SET a.id=$new": 2,
        "MATCH (a:Person {id:$a}),(b:Person {id:$b}) SET a.id=null, b.id=$a SET a.id=$b": 1,
    },
    "add a label": {
        "MATCH (a:Person {id:$a}) SET a:Movie": 2,
        "MATCH (a:Person {id:$a}) SET a:City": 1,
        "MATCH (a) WHERE a.id=$a SET a:Person": 2,
        "MATCH (a:Movie {id:$a}) SET a:Person": 1,
    },
    "remove a label": {
        "MATCH (a:Person {id:$a}) REMOVE a:City": 1,
        "MATCH (a:Person {id:$a}) REMOVE a:Movie": 2,
        "MATCH (a:Person {id:$a}) REMOVE a:Person": 2,
        "MATCH (a:Person {id:$a}) REMOVE a:Person SET a:Movie": 1,
        "MATCH (a:Person {id:$a}) REMOVE a:Person, a.id": 1,
        "MATCH (a:Person {id:$a}) SET a.id=$new REMOVE a:Person": 1,
    },
    "merge": {
        "MATCH (a:Person {id:$a}),(b:Person {id:$b}) MERGE (a)-[:KNOWS]->(b)": 1,
        (
            "MATCH (a:Person {id:$a}),(b:Person {id:$b}) MERGE (a)-[r:KNOWS]-(b) ON CREATE SET r.since=1 ON MATCH SET "
            "r.since=$g"
        ): 1,
        "MERGE (a:Person {id:$new}) ON CREATE SET a.name=$n ON MATCH SET a.age=$g": 2,
        "MERGE (a:Movie {id:$new}) SET a.title=$n": 1,
    },
    "foreach": {
        "MATCH (a:Person) WHERE a.id IN $ids WITH collect(a) AS found FOREACH (one IN found | SET one.age=$g)": 1,
        (
            "MATCH (a:Person {id:$a}) FOREACH (one IN range(1,2) | CREATE (a)-[:KNOWS {since:one}]->(:Person "
            "{name:$n}))"
        ): 1,
        "MATCH (a:Person {id:$a})-[r:KNOWS]-() WITH collect(r) AS found FOREACH (one IN found | DELETE one)": 1,
    },
    "subquery": {
        "MATCH (a:Person {id:$a}) CALL { WITH a MATCH (a)-[:KNOWS]-(f:Person) SET f.age=$g }": 1,
        "MATCH (a:Person {id:$a}) CALL { WITH a MATCH (a)-[r:KNOWS]->() WITH r LIMIT 1 DELETE r }": 1,
        "UNWIND $rows AS row CALL { WITH row MATCH (a:Person {id:row.id}) SET a.name=$n }": 1,
    },
    "change many": {
        "MATCH (a:Person) SET a.age=coalesce(a.age, 0) + 1": 1,
        "MATCH (:Person)-[r:KNOWS]->() SET r.since=$g": 1,
    },
}
"""By kind, each with how often it is drawn."""


def drawn(rng: random.Random) -> dict[str, Any]:
    """Return a value for each parameter of all of them."""
    key = lambda: rng.randint(1, KEYS + 8)  # noqa: E731
    return {
        "id": key(),
        "a": key(),
        "b": key(),
        "new": key(),
        "decimal": float(key()),
        "ids": [key() for _ in range(rng.randint(0, 3))],
        "rows": [{"id": key()} for _ in range(rng.randint(0, 3))],
        "age": rng.randint(1, 60),
        "g": rng.randint(1, 60),
        "n": f"n{rng.randint(0, 30)}",
        "m": f"n{rng.randint(0, 30)}",
    }


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph: what its labels and types are called, and the pairs that its relationships join, as keys.

    Of more than ``noted`` changes a transaction's note names none.
    """

    names: dict[str, str]
    pairs: Callable[[random.Random], list[tuple[int, int]]]
    is_indexed: bool = True
    noted: int = 1_000

    def named(self, cypher: str) -> str:
        """Return a statement in the words of this graph."""
        return re.sub(r"\b[A-Z]\w+\b", lambda found: self.names.get(found[0], found[0]), cypher)


def _rmat(rng: random.Random) -> list[tuple[int, int]]:
    """Drop edges into quarters of the adjacency matrix, again and again: a few hubs, many leaves."""
    quarters = ((0, 0), (0, 1), (1, 0), (1, 1))

    def edge() -> tuple[int, int]:
        drawn = rng.choices(quarters, (55, 10, 10, 25), k=6)
        row, column = (sum(quarter[side] << place for place, quarter in enumerate(drawn)) for side in (0, 1))
        return 1 + row % KEYS, 1 + column % KEYS

    return [edge() for _ in range(2 * KEYS)]


def _social(rng: random.Random) -> list[tuple[int, int]]:
    """Join each with its neighbours on a ring, and some with anybody: a small world."""
    ring = [(key, 1 + (key - 1 + step) % KEYS) for key in range(1, KEYS + 1) for step in (1, 2)]
    return [(start, end if rng.random() < 0.8 else rng.randint(1, KEYS)) for start, end in ring]


def _packages(rng: random.Random) -> list[tuple[int, int]]:
    """Let each require older ones, the more so the more they are required."""
    pairs: list[tuple[int, int]] = []
    for key in range(2, KEYS + 1):
        for _ in range(rng.randint(1, 3)):
            pairs.append((key, rng.choice([end for _, end in pairs] + list(range(1, key)))))
    return pairs


_OF_PACKAGES: Final = {
    "Person": "Package", "Movie": "Maintainer", "City": "Vendor", "KNOWS": "REQUIRES", "LIKES": "MAINTAINED_BY",
}  # fmt: skip
GRAPHS: Final = {
    "R-MAT": Graph({}, _rmat),
    "social": Graph({}, _social, is_indexed=False),
    "packages": Graph(_OF_PACKAGES, _packages, noted=40),
}
