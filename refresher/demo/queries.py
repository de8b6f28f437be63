"""Queries of the demo over the social graph, for ArcadeDB and Neo4j 5.26 alike.

TTLs are a few seconds, since the demo runs for about twenty, in which each entry grows stale and is refreshed several
times. A real application would take minutes. The grace is longer than the demo, so that a reader always finds a value.

Each query reads a bounded number of rows, because of hubs (in a graph of packages one has 20,000 dependents, whose
neighbours are the whole graph). Results are exact for persons with up to `MAX_FRIENDS` friends, with up to `MAX_FANOUT`
relationships each, and up to `MAX_PATHS` paths over them, as all persons in the generated graph have. Beyond that,
results cover a part of the neighbourhood.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString

from refresher import query
from refresher.feed import node_tags, watch

if TYPE_CHECKING:
    from neo4j import ManagedTransaction

MAX_FRIENDS: Final = 500
MAX_FANOUT: Final = 1_000
MAX_PATHS: Final = 50_000
MAX_STEPS: Final = 6
"""Longest path that `shortest_path` finds, in relationships; a literal in its Cypher, which allows no parameter."""

MAX_LIMIT: Final = 1_000

watch("Person", key="name")
BY_TTL: Final = "profile"
BY_FEED: Final = "profile_by_feed"
"""Queries of the same value, kept for 3 s, or for an hour unless the change feed invalidates it."""

DEGREE: Final = "MATCH (p:Person {name: $name}) RETURN COUNT { (p)--() }"
DEGREE_OF_SOURCE: Final = "MATCH (p:Person {name: $source}) RETURN COUNT { (p)--() }"

# The LIMIT in the subquery cuts each hub among the friends, the one after it all of them together. The label on both
# ends costs nothing measurable, and keeps out other nodes of a user's database.
_FRIENDS_OF_FRIENDS = """
MATCH (p:Person {name: $name})-[:KNOWS]-(friend:Person)
WITH DISTINCT p, friend LIMIT $max_friends
CALL (friend) { MATCH (friend)-[:KNOWS]-(other:Person) RETURN other LIMIT $max_fanout }
WITH p, other LIMIT $max_paths
WITH DISTINCT p, other
WHERE other <> p AND NOT (p)-[:KNOWS]-(other)
RETURN other.name AS name
ORDER BY name LIMIT $limit
"""

# A hub is left out here rather than cut, because a part of its neighbours would give a wrong count.
_RECOMMEND = """
MATCH (p:Person {name: $name})-[:KNOWS]-(friend:Person)
WITH DISTINCT p, friend LIMIT $max_friends
WHERE COUNT { (friend)-[:KNOWS]-() } <= $max_fanout
MATCH (friend)-[:KNOWS]-(other:Person)
WITH p, friend, other LIMIT $max_paths
WITH p, other, count(DISTINCT friend) AS mutual
WHERE other <> p AND NOT (p)-[:KNOWS]-(other)
RETURN other.name AS name, mutual
ORDER BY mutual DESC, name LIMIT $limit
"""

_SHORTEST_PATH = """
MATCH (a:Person {name: $source}), (b:Person {name: $target})
MATCH path = shortestPath((a)-[:KNOWS*..6]-(b))
RETURN [person IN nodes(path) | person.name] AS names
"""

_PROFILE = """
MATCH (p:Person {name: $name})
RETURN p.name AS name, p.version AS version, COUNT { (p)-[:KNOWS]-() } AS degree
"""


@query("friends_of_friends", ttl="6s", grace="1m", degree=DEGREE)
def friends_of_friends(tx: ManagedTransaction, name: str, limit: int = 20) -> list[dict[str, object]]:
    """Return up to ``limit`` persons exactly two steps away, as ``{"name"}``, ordered by name.

    An unknown name has none. The TTL is 6 s, since a load takes 6 ms in the median but 0.3 s for the greatest hub, so
    that seventy hot keys cost a sixth of a core.
    """
    return _two_steps_away(tx, _FRIENDS_OF_FRIENDS, name, limit)


@query("recommend", ttl="8s", grace="1m", degree=DEGREE)
def recommend(tx: ManagedTransaction, name: str, limit: int = 10) -> list[dict[str, object]]:
    """Return up to ``limit`` persons as ``{"name", "mutual"}``, most mutual friends first.

    Friends with more than `MAX_FANOUT` relationships don't count. The TTL is 8 s, as this is, besides
    `friends_of_friends`, the most expensive query, and its result may be a bit old.
    """
    return _two_steps_away(tx, _RECOMMEND, name, limit)


@query("shortest_path", ttl="5s", grace="1m", degree=DEGREE_OF_SOURCE)
def shortest_path(tx: ManagedTransaction, source: str, target: str) -> list[str]:
    """Return the names on a shortest path, including both ends; empty if none has at most `MAX_STEPS` steps.

    Any of several shortest paths may be returned. The TTL is 5 s: it is cheap (a few ms), but there are many pairs.
    """
    if source == target:  # Neo4j refuses a path from a node to itself
        return [source] if profile(tx, source) is not None else []
    record = tx.run(_SHORTEST_PATH, source=source, target=target).single()
    return [] if record is None else list(record["names"])


@query(BY_TTL, ttl="3s", grace="1m", degree=DEGREE)
def profile(tx: ManagedTransaction, name: str) -> dict[str, object] | None:
    """Return ``{"name", "version", "degree"}`` of a person, or None.

    The demo's writer increments ``version`` and invalidates; its checker compares the values that readers get. The TTL
    is 3 s: this is the cheapest query (1 ms), and the one whose values change during the demo.
    """
    record = tx.run(_PROFILE, name=name).single()
    return None if record is None else record.data()


@query(BY_FEED, ttl="1h", grace="1h", tags=lambda _, name: node_tags("Person", name))
def profile_by_feed(tx: ManagedTransaction, name: str) -> dict[str, object] | None:
    """Return the same as `profile`, kept until the change feed invalidates it."""
    return profile(tx, name)


def _two_steps_away(tx: ManagedTransaction, cypher: LiteralString, name: str, limit: int) -> list[dict[str, object]]:
    """Run one of the queries over the friends of friends, within the bounds that keep a hub affordable."""
    found = tx.run(
        cypher, name=name, limit=_checked(limit), max_friends=MAX_FRIENDS, max_fanout=MAX_FANOUT, max_paths=MAX_PATHS
    )
    return found.data()


def _checked(limit: int) -> int:
    """Return ``limit`` if it is from 1 to `MAX_LIMIT`; a ValueError otherwise, which is never retried."""
    if not 1 <= limit <= MAX_LIMIT:
        raise ValueError(f"limit must be from 1 to {MAX_LIMIT:,}, got {limit}")
    return limit
