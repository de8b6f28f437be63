"""Queries of the worker: immediate, paused, and from a graph, also in batches. Imported by the worker."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Final

import neo4j

from benchmarks.apparatus.entries import Value, rows_of
from refresher import query
from refresher.queries import MAX_SLOTS

AT_ONCE: Final = "at_once"
TEN_MS: Final = "ten_ms"
FIFTY_MS: Final = "fifty_ms"
ONE_SECOND: Final = "one_second"
PERSON: Final = "person"
BATCHED: Final = "batched_at_once"
BATCHED_PERSON: Final = "batched_person"
LOAD_SECONDS: Final = {AT_ONCE: 0.0, TEN_MS: 0.01, FIFTY_MS: 0.05, ONE_SECOND: 1.0, PERSON: 0.0}
PERSONS: Final = 200

_BATCH: Final = 100
_VALUE: Final = rows_of(0)
# There are a few hundred persons, but a key for each number.
_DEGREE: Final = "MATCH (p:BenchPerson {id: $person_id % 200}) RETURN COUNT { (p)--() }"
_PERSON: Final = "MATCH (p:BenchPerson {id: $person_id % 200}) RETURN p.name AS name"
_PERSONS: Final = "UNWIND $calls AS call MATCH (p:BenchPerson {id: call.person_id % 200}) RETURN p.name AS name"
_DEGREES: Final = "UNWIND $calls AS call MATCH (p:BenchPerson {id: call.person_id % 200}) RETURN COUNT { (p)--() }"
_query: Final = partial(query, ttl="1h", grace="1h", slots=MAX_SLOTS)


def _paused(name: str) -> None:
    @_query(name)
    def load(tx: Any, person_id: int) -> Value:
        time.sleep(LOAD_SECONDS[name])
        return _VALUE


for _name in (AT_ONCE, TEN_MS, FIFTY_MS, ONE_SECOND):
    _paused(_name)


@_query(PERSON, degree=_DEGREE)
def person(tx: Any, person_id: int) -> str:
    """Read a person's name; the degree takes another query in the same transaction."""
    name: str = tx.run(_PERSON, person_id=person_id).single(strict=True).value()
    return name


@_query(BATCHED, batch=_BATCH)
def batched_at_once(tx: Any, calls: list[dict[str, int]]) -> list[Value]:
    """Return a value of 1 KiB for each call."""
    return [_VALUE] * len(calls)


@_query(BATCHED_PERSON, batch=_BATCH, degree=_DEGREES)
def batched_person(tx: Any, calls: list[dict[str, int]]) -> list[str]:
    """Read each person's name; their degrees take another query in the same transaction."""
    names: list[str] = tx.run(_PERSONS, calls=calls).value()
    return names


def ask_all(session: neo4j.Session, number: int) -> None:
    """Run the graph queries of this call's loads, one by one and in a batch."""
    for queries in ((_PERSON, _DEGREE), (_PERSONS, _DEGREES)):
        with session.begin_transaction() as tx:
            for cypher in queries:
                tx.run(cypher, person_id=number, calls=[{"person_id": number}]).consume()
