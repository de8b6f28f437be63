"""Options of the demo."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

DEFAULT_SECONDS: Final = 20.0
MIN_SECONDS: Final = 4.0
MAX_SECONDS: Final = 3600.0
DEFAULT_READERS: Final = 2
MAX_READERS: Final = 32
DEFAULT_PERSONS: Final = 20_000
MIN_PERSONS: Final = 50
MAX_PERSONS: Final = 1_000_000
READS_PER_SECOND: Final = 2_000.0
"""Rate of all readers together. A read costs 0.15 ms on two cores, and worker and graph need the rest."""


class GraphServer(StrEnum):
    """Graphs that the demo starts."""

    ARCADEDB = "arcadedb"
    NEO4J = "neo4j"


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of `refresher demo`.

    Attributes:
        seconds: the time for which the readers read, prolonged while entries wait for the second worker.
        keep: True to go on until Ctrl-C.
        chaos: True to kill the worker in the middle.
        persons: the smallest number of persons in the graph.
        graph_server: the graph to start.
        feed: True to show staleness with the change feed and without it; only on Neo4j.
        readers: the number of reader processes.
        seed: the seed of the graph, its popularity, and each reader's draws.
    """

    seconds: float = DEFAULT_SECONDS
    keep: bool = False
    chaos: bool = True
    persons: int = DEFAULT_PERSONS
    graph_server: GraphServer = GraphServer.ARCADEDB
    feed: bool = False
    readers: int = DEFAULT_READERS
    seed: int = 1
