"""Queries of the worker: loaded at once, after 10 ms, and from a graph, in batches too. Imported by the worker."""

from __future__ import annotations

import time
from typing import Any, Final

from benchmarks.apparatus.entries import Value, rows_of
from refresher import query
from refresher.queries import MAX_CONCURRENCY

AT_ONCE: Final = "at_once"
TEN_MS: Final = "ten_ms"
FRIENDS: Final = "friends"
BATCHED: Final = "batched_at_once"
BATCHED_FRIENDS: Final = "batched_friends"
BATCH: Final = 100
LOAD_SECONDS: Final = 0.01

_VALUE: Final = rows_of(0)
# There are a few hundred persons, and a key for each number.
_DEGREE: Final = "MATCH (p:BenchPerson {id: $person_id % 200}) RETURN COUNT { (p)--() }"
_FRIENDS: Final = "MATCH (:BenchPerson {id: $id % 200})-[:KNOWS]-(f:BenchPerson) RETURN f.id AS id, f.name AS name"
_FRIENDS_OF_ALL: Final = """
UNWIND $ids AS id
MATCH (:BenchPerson {id: id})-[:KNOWS]-(f:BenchPerson)
RETURN id, collect({id: f.id, name: f.name}) AS friends
"""
_DEGREES: Final = "UNWIND $calls AS call MATCH (p:BenchPerson {id: call.person_id % 200}) RETURN COUNT { (p)--() }"


@query(AT_ONCE, ttl="1h", concurrency=MAX_CONCURRENCY, grace="1h")
def at_once(tx: Any, person_id: int) -> Value:
    """Return a value of 1 KiB that is there already."""
    return _VALUE


@query(TEN_MS, ttl="1h", concurrency=MAX_CONCURRENCY, grace="1h")
def ten_ms(tx: Any, person_id: int) -> Value:
    """Return it after 10 ms."""
    time.sleep(LOAD_SECONDS)
    return _VALUE


@query(FRIENDS, ttl="1h", concurrency=MAX_CONCURRENCY, grace="1h", degree=_DEGREE)
def friends(tx: Any, person_id: int) -> Value:
    """Read the twenty friends of a person; the degree is one more query in the same transaction."""
    return tx.run(_FRIENDS, id=person_id).data()


@query(BATCHED, ttl="1h", concurrency=MAX_CONCURRENCY, grace="1h", batch=BATCH)
def batched_at_once(tx: Any, calls: list[dict[str, int]]) -> list[Value]:
    """Return a value of 1 KiB for each call."""
    return [_VALUE] * len(calls)


@query(BATCHED_FRIENDS, ttl="1h", concurrency=MAX_CONCURRENCY, grace="1h", batch=BATCH, degree=_DEGREES)
def batched_friends(tx: Any, calls: list[dict[str, int]]) -> list[Value]:
    """Read the twenty friends of each person; their degrees are one more query in the same transaction."""
    ids = [call["person_id"] % 200 for call in calls]
    friends = {row["id"]: row["friends"] for row in tx.run(_FRIENDS_OF_ALL, ids=sorted(set(ids)))}
    return [friends[id_] for id_ in ids]
