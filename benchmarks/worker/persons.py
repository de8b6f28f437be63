"""Persons in the graph that the worker's queries read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
_COUNT: Final = "MATCH (p:BenchPerson) RETURN count(p) AS persons"
_REMOVE: Final = "MATCH (p:BenchPerson) DETACH DELETE p"
# As an application's graph has one: a read by id is no scan, least of all a hundred of them in a batch.
_INDEX: Final = "CREATE INDEX bench_person IF NOT EXISTS FOR (p:BenchPerson) ON (p.id)"
_DROP_INDEX: Final = "DROP INDEX bench_person IF EXISTS"


@contextmanager
def graph_of_persons(neo4j_uri: str | None, warm_up_loads: int) -> Iterator[GraphTarget]:
    """Start a graph and load it; in the end nothing of that is left in one's own."""
    with ExitStack() as stack:
        driver, target = stack.enter_context(running_graph(neo4j_uri))
        session = stack.enter_context(driver.session(database=target.database))
        try:
            if session.run(_COUNT).single(strict=True)["persons"]:
                raise BenchError("the graph holds BenchPerson nodes already: remove them, or use another one")
            stack.callback(lambda: session.run(_REMOVE).consume())
            session.run(_INDEX).consume()
            stack.callback(lambda: session.run(_DROP_INDEX).consume())
            session.run(_CREATE, persons=queries.PERSONS).consume()
            session.run(_JOIN, persons=queries.PERSONS, friends=_FRIENDS_EACH).consume()
            for number in range(warm_up_loads):
                queries.ask_all(session, number)
        except (DriverError, Neo4jError, OSError) as error:
            raise BenchError(f"the graph can't be used: {str(error).splitlines()[0]}") from error
        yield target
