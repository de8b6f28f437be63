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
"""Of all readers together. On two cores a read costs 0.15 ms, and the worker and the graph need the rest."""


class GraphServer(StrEnum):
    """Graphs that the demo starts."""

    ARCADEDB = "arcadedb"
    NEO4J = "neo4j"


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of `refresher demo`.

    Attributes:
        seconds: how long the readers read; longer while entries wait for the worker that took over.
        keep: go on until Ctrl-C.
        chaos: kill the worker in the middle.
        persons: in the graph, at least.
        graph_server: which graph is started.
        feed: show staleness with the change feed and without it; on Neo4j alone.
        readers: reader processes.
        seed: of the graph, its popularity, and each reader's draws.
    """

    seconds: float = DEFAULT_SECONDS
    keep: bool = False
    chaos: bool = True
    persons: int = DEFAULT_PERSONS
    graph_server: GraphServer = GraphServer.ARCADEDB
    feed: bool = False
    readers: int = DEFAULT_READERS
    seed: int = 1
