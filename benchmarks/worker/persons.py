"""Persons in the graph, for the worker's queries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from neo4j.exceptions import DriverError, Neo4jError

from benchmarks.apparatus.graph import GraphTarget, running_graph
from benchmarks.errors import BenchError
from benchmarks.worker import queries

_FRIENDS_EACH: Final = 10
_CREATE: Final = """
UNWIND range(0, $persons - 1) AS number
CREATE (:BenchPerson {id: number, name: 'Person no ' + toString(number)})
"""
_JOIN: Final = """
UNWIND range(1, $friends) AS step
MATCH (a:BenchPerson)
MATCH (b:BenchPerson {id: (a.id + step) % $persons})
CREATE (a)-[:KNOWS]->(b)
"""
# As in an application's graph, so that a read by id is no scan, especially not a hundred of them in a batch.
_INDEX: Final = "CREATE INDEX bench_person IF NOT EXISTS FOR (p:BenchPerson) ON (p.id)"


@contextmanager
def graph_of_persons(warm_up_loads: int) -> Iterator[GraphTarget]:
    """Start a graph with the persons."""
    with running_graph() as (driver, target), driver.session(database=target.database) as session:
        try:
            session.run(_INDEX).consume()
            session.run(_CREATE, persons=queries.PERSONS).consume()
            session.run(_JOIN, persons=queries.PERSONS, friends=_FRIENDS_EACH).consume()
            for number in range(warm_up_loads):
                queries.ask_all(session, number)
        except (DriverError, Neo4jError, OSError) as error:
            raise BenchError(f"the graph can't be used: {str(error).splitlines()[0]}") from error
        yield target
