"""Queries whose values depend on a graph that a change feed watches."""

from __future__ import annotations

from typing import Any

from api_client import get_cached
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


@query("found_friends", ttl="1h", grace="1h", tags="auto")
def found_friends(tx: Any, i: int) -> list[dict[str, Any]]:
    """Return the friends of a person, whose tags the worker finds."""
    cypher = "MATCH (:Person {id: $i})-[:KNOWS]-(f:Person) RETURN f.id AS id, f.name AS name ORDER BY id"
    rows: list[dict[str, Any]] = tx.run(cypher, i=i).data()
    return rows


@query("friends_names", ttl="1h", grace="1h", tags="auto")
def friends_names(tx: Any, i: int) -> list[str]:
    """Return the names in another entry."""
    return [str(friend["name"]) for friend in get_cached("found_friends", {"i": i})]


@query("found_names", ttl="1h", grace="1h", tags="auto")
def found_names(tx: Any) -> list[str]:
    """Return the names of all people: no key is given."""
    return [str(row["name"]) for row in tx.run("MATCH (p:Person) RETURN p.name AS name ORDER BY name")]
