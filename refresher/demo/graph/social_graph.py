"""Social graph: persons who know each other, and the load of them into a database that speaks Bolt.

In the database: ``(:Person {id, name, version})-[:KNOWS]->(:Person)``; ``id`` counts from 0, ``name`` is unique, and
the demo's writer raises ``version`` from 0. The same Cypher runs on ArcadeDB and Neo4j.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
from neo4j.exceptions import DriverError, Neo4jError

from refresher.demo.errors import DemoError
from refresher.demo.graph.rmat import rmat_with_at_least

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import LiteralString

    from neo4j import Driver
    from numpy.typing import NDArray

BATCH_ROWS: Final = 10_000
"""Rows per transaction. 2,000 would be as fast on ArcadeDB; far more only costs the server memory."""

EDGES_PER_PERSON: Final = 10

_INDEXES: tuple[LiteralString, ...] = (
    "CREATE INDEX person_id IF NOT EXISTS FOR (p:Person) ON (p.id)",
    "CREATE INDEX person_name IF NOT EXISTS FOR (p:Person) ON (p.name)",
)
_CREATE_PERSONS = "UNWIND $rows AS row CREATE (:Person {id: row[0], name: row[1], version: 0})"
_CREATE_EDGES = (
    "UNWIND $rows AS row MATCH (a:Person {id: row[0]}) MATCH (b:Person {id: row[1]}) CREATE (a)-[:KNOWS]->(b)"
)


@dataclass(frozen=True)
class SocialGraph:
    """Persons, and who knows whom: no self loops, no duplicates (an edge and its reverse are two edges).

    ``names[i]`` is the name of person i. ``sources`` and ``targets`` are int64 arrays of one shape, (edges,), of
    indices into ``names``, ordered by source and then target.
    """

    names: list[str]
    sources: NDArray[np.int64]
    targets: NDArray[np.int64]

    @property
    def persons(self) -> int:
        """Number of persons."""
        return len(self.names)

    @property
    def edges(self) -> int:
        """Number of KNOWS relationships."""
        return len(self.sources)

    @cached_property
    def degrees(self) -> NDArray[np.int64]:
        """Relationships of each person, in both directions: an int64 array (persons,)."""
        ends = np.concatenate([self.sources, self.targets])
        return np.bincount(ends, minlength=self.persons).astype(np.int64)

    @classmethod
    def generated(cls, persons: int, *, seed: int) -> SocialGraph:
        """Make an R-MAT graph of at least ``persons`` persons, and `EDGES_PER_PERSON` times as many edges.

        Raises:
            ValueError: no R-MAT graph has these numbers (see `rmat_with_at_least`).
        """
        graph = rmat_with_at_least(persons, EDGES_PER_PERSON * persons, seed=seed)
        names = [person_name(number) for number in range(graph.vertices)]
        # Sorted by source, so that ArcadeDB loads them in half the time (4 s instead of 8 s for 200,000).
        keys = np.sort(graph.sources * len(names) + graph.targets)
        return cls(names, keys // len(names), keys % len(names))


def load(
    driver: Driver, database: str | None, graph: SocialGraph, on_progress: Callable[[int], object] = lambda _done: None
) -> None:
    """Write the graph into ``database`` (None: the default one).

    ``on_progress(done)`` is called after each batch, with the persons and edges so far.

    Raises:
        DemoError: the database refused a batch.
    """
    total, done = graph.persons + graph.edges, 0
    try:
        with driver.session(database=database) as session:
            for statement in _INDEXES:
                session.run(statement).consume()
            for statement, rows in _batches(graph, BATCH_ROWS):
                session.run(statement, rows=rows).consume()
                done += len(rows)
                on_progress(done)
    except (DriverError, Neo4jError) as error:
        raise DemoError(f"loading stopped after {done:,} of {total:,}: {error}") from error


def _batches(graph: SocialGraph, batch_rows: int) -> Iterator[tuple[LiteralString, list[list[int | str]]]]:
    """Yield (statement, rows): first the persons, then the edges."""
    for start in range(0, graph.persons, batch_rows):
        names = graph.names[start : start + batch_rows]
        yield _CREATE_PERSONS, [[start + offset, name] for offset, name in enumerate(names)]
    pairs = np.stack([graph.sources, graph.targets], axis=1)
    for start in range(0, graph.edges, batch_rows):
        yield _CREATE_EDGES, pairs[start : start + batch_rows].tolist()


_GIVEN_NAMES = """
    Ada Alan Amara Aiko Barbara Chidi Claude Dana Donald Edsger Elena Emeka Fatima Frances Grace Hana Hedy Ines Ivan
    Jamal Jean John Joan Kamala Katherine Kofi Leila Linus Lucia Mateo Margaret Mei Nadia Niklaus Olga Omar Priya
    Radia Rosa Ruth Sofia Tim Uma Vint Wanda Yusuf Zainab
"""
_FAMILY_NAMES = """
    Abara Allen Bauer Berg Castro Chen Dahl Diallo Eze Fischer Garcia Goldberg Haddad Hoffmann Ibrahim Ivanova Jansen
    Johnson Kaya Kim Kovacs Lamar Lopez Mensah Moreau Murphy Nakamura Novak Nwosu Okafor Olsen Patel Perez Quispe
    Rossi Sato Silva Singh Tanaka Torres Ueda Vargas Wagner Weber Xu Yilmaz Zhang
"""
_GIVEN = tuple(_GIVEN_NAMES.split())
_FAMILY = tuple(_FAMILY_NAMES.split())


def person_name(number: int) -> str:
    """Return the name of the person of that number (>= 0): "Ada Okafor 00042". The number makes it unique."""
    family, given = divmod(number, len(_GIVEN))
    # A step of 17, which is coprime to the list's length, keeps neighbours from sharing a family name.
    return f"{_GIVEN[given]} {_FAMILY[(family + 17 * given) % len(_FAMILY)]} {number:05}"
