"""Queries of the worker: loaded at once, after a while, and from a graph, in batches too. Imported by the worker."""

from __future__ import annotations

import time
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
BATCH: Final = 100
LOAD_SECONDS: Final = 0.01

_VALUE: Final = rows_of(0)
# There are a few hundred persons, and a key for each number.
_DEGREE: Final = "MATCH (p:BenchPerson {id: $person_id % 200}) RETURN COUNT { (p)--() }"
_PERSON: Final = "MATCH (p:BenchPerson {id: $person_id % 200}) RETURN p.name AS name"
_PERSONS: Final = "UNWIND $calls AS call MATCH (p:BenchPerson {id: call.person_id % 200}) RETURN p.name AS name"
_DEGREES: Final = "UNWIND $calls AS call MATCH (p:BenchPerson {id: call.person_id % 200}) RETURN COUNT { (p)--() }"


@query(AT_ONCE, ttl="1h", slots=MAX_SLOTS, grace="1h")
def at_once(tx: Any, person_id: int) -> Value:
    """Return a value of 1 KiB that is there already."""
    return _VALUE


@query(TEN_MS, ttl="1h", slots=MAX_SLOTS, grace="1h")
def ten_ms(tx: Any, person_id: int) -> Value:
    """Return it after 10 ms."""
    time.sleep(LOAD_SECONDS)
    return _VALUE


@query(FIFTY_MS, ttl="1h", slots=MAX_SLOTS, grace="1h")
def fifty_ms(tx: Any, person_id: int) -> Value:
    """Return it after 50 ms."""
    time.sleep(0.05)
    return _VALUE


@query(ONE_SECOND, ttl="1h", slots=MAX_SLOTS, grace="1h")
def one_second(tx: Any, person_id: int) -> Value:
    """Return it after a second."""
    time.sleep(1.0)
    return _VALUE


@query(PERSON, ttl="1h", slots=MAX_SLOTS, grace="1h", degree=_DEGREE)
def person(tx: Any, person_id: int) -> str:
    """Read a person's name; the degree is one more query in the same transaction."""
    name: str = tx.run(_PERSON, person_id=person_id).single(strict=True).value()
    return name


@query(BATCHED, ttl="1h", slots=MAX_SLOTS, grace="1h", batch=BATCH)
def batched_at_once(tx: Any, calls: list[dict[str, int]]) -> list[Value]:
    """Return a value of 1 KiB for each call."""
    return [_VALUE] * len(calls)


@query(BATCHED_PERSON, ttl="1h", slots=MAX_SLOTS, grace="1h", batch=BATCH, degree=_DEGREES)
def batched_person(tx: Any, calls: list[dict[str, int]]) -> list[str]:
    """Read each person's name; their degrees are one more query in the same transaction."""
    names: list[str] = tx.run(_PERSONS, calls=calls).value()
    return names


def ask_all(session: neo4j.Session, number: int) -> None:
    """Ask the graph what the loads of the call with this number would, one by one and in a batch."""
    for queries in ((_PERSON, _DEGREE), (_PERSONS, _DEGREES)):
        with session.begin_transaction() as tx:
            for cypher in queries:
                tx.run(cypher, person_id=number, calls=[{"person_id": number}]).consume()
