"""What is asked of the graph, in Cypher that ArcadeDB and Neo4j 5.26 both take: the same text for both settings."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, LiteralString

from benchmarks.topology.levels import Mode
from refresher.flow.policy import effective_beta
from refresher.settings import RefreshMode


class Kind(StrEnum):
    """The kinds of queries; each key is of one."""

    NEIGHBOURS = "neighbours"
    TWO_HOPS = "two_hops"
    SHORTEST_PATH = "shortest_path"


@dataclass(frozen=True, slots=True)
class Asked:
    """One key: a query of a kind with its params, and the degree of its person."""

    kind: Kind
    params: dict[str, Any]
    degree: int


# Bounds keep one hub from reading the whole graph; the demo's queries have such, too.
CYPHER: Final[dict[Kind, LiteralString]] = {
    Kind.NEIGHBOURS: """
MATCH (:Person {id: $person_id})-[:KNOWS]-(friend:Person)
RETURN DISTINCT friend.name AS name ORDER BY name LIMIT 50
""",
    Kind.TWO_HOPS: """
MATCH (p:Person {id: $person_id})-[:KNOWS]-(friend:Person)
WITH DISTINCT p, friend LIMIT 500
MATCH (friend)-[:KNOWS]-(other:Person)
WITH p, other LIMIT 20000
WITH DISTINCT p, other WHERE other <> p
RETURN count(other) AS reached
""",
    Kind.SHORTEST_PATH: """
MATCH (a:Person {id: $person_id}), (b:Person {id: $other_id})
MATCH path = shortestPath((a)-[:KNOWS*..6]-(b))
RETURN [person IN nodes(path) | person.name] AS names
""",
}
DEGREE: Final[LiteralString] = "MATCH (p:Person {id: $person_id}) RETURN COUNT { (p)--() }"


def beta_of(mode: Mode, beta0: float, degree: int) -> float:
    """Return the effective β, by the worker's own policy; 0 where nothing is refreshed early."""
    if mode is Mode.NO_EARLY:
        return 0.0
    policy = RefreshMode.PLAIN if mode is Mode.PLAIN else RefreshMode.TOPOLOGY_SENSITIVE
    return effective_beta(policy, beta0, degree, 1.0)
