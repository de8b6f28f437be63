"""Queries whose values depend on a graph that a change feed watches."""

from __future__ import annotations

from typing import Any

from refresher import query
from refresher.feed import node_tags, relationship_tags, watch, watch_relationship

watch("Person", key="id")
watch_relationship("KNOWS")


@query(
    "friends",
    ttl="1h",
    grace="1h",
    tags=lambda value, i: [
        *node_tags("Person", i, *(one["id"] for one in value)),
        *relationship_tags("KNOWS", "Person", i),
    ],
)
def friends(tx: Any, i: int) -> list[dict[str, Any]]:
    """Return the friends of a person."""
    cypher = "MATCH (:Person {id: $i})-[:KNOWS]-(f) RETURN f.id AS id, f.name AS name ORDER BY id"
    rows: list[dict[str, Any]] = tx.run(cypher, i=i).data()
    return rows


@query("people", ttl="1h", grace="1h", tags=lambda value: node_tags("Person"))
def people(tx: Any) -> int:
    """Return how many people there are."""
    return int(tx.run("MATCH (p:Person) RETURN count(p) AS n").single()["n"])
