"""Queries of the worker: loaded at once, after 10 ms, and from a graph. Imported by the worker."""

from __future__ import annotations

import time
from typing import Any, Final

from benchmarks.apparatus.entries import Value, rows_of
from refresher import query
from refresher.queries import MAX_CONCURRENCY

AT_ONCE: Final = "at_once"
TEN_MS: Final = "ten_ms"
FRIENDS: Final = "friends"
LOAD_SECONDS: Final = 0.01

_VALUE: Final = rows_of(0)
# There are a few hundred persons, and a key for each number.
_DEGREE: Final = "MATCH (p:BenchPerson {id: $person_id % 200}) RETURN COUNT { (p)--() }"
_FRIENDS: Final = "MATCH (:BenchPerson {id: $id % 200})-[:KNOWS]-(f:BenchPerson) RETURN f.id AS id, f.name AS name"


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
