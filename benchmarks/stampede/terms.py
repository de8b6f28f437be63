"""What all strategies of a scenario are given alike: how long a value lasts, what a recompute costs, and where."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from benchmarks.places import Place

TERMS: Final = "BENCH_STAMPEDE_TERMS"
GRACE_SECONDS: Final = 60.0
POOL_CONNECTIONS: Final = 64
POOL_WAIT_SECONDS: Final = 30.0


class Kind(StrEnum):
    """Who reads: a process each, threads of four processes, or asyncio's tasks in four processes."""

    PROCESSES = "processes"
    THREADS = "threads"
    ASYNCIO = "asyncio"


class OriginKind(StrEnum):
    """What a recompute is: a pause of δ, or a query on the embedded graph."""

    PAUSE = "pause"
    GRAPH = "graph"


@dataclass(frozen=True, slots=True)
class GraphAddress:
    """Where the graph is, and the person whose neighbours are asked for."""

    uri: str
    user: str
    password: str
    database: str
    person_id: int


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of one scenario.

    Attributes:
        place: the servers.
        expires_seconds: how long a value is fresh.
        delta_seconds: the pause that stands for a recompute.
        lease_seconds: how long a lock is held by who died with it, where that can be set.
        beta, rnd_precision: of XFetch; 0 digits: all.
        graph: None: the pause.
    """

    place: Place
    expires_seconds: float
    delta_seconds: float
    lease_seconds: float
    beta: float
    rnd_precision: int
    graph: GraphAddress | None = None

    @property
    def hard_seconds(self) -> float:
        """How long a value is kept by those that serve stale ones."""
        return self.expires_seconds + GRACE_SECONDS

    def as_environ(self) -> dict[str, str]:
        """Return what a worker has to find in its environment, where passwords may stand."""
        return {TERMS: msgspec.json.encode(self).decode()}

    @classmethod
    def from_environ(cls) -> Terms:
        """Return the terms that this process was started with."""
        return msgspec.json.decode(os.environ[TERMS], type=cls)
