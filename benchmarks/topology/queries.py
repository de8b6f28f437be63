"""Cypher of both settings (for ArcadeDB and Neo4j 5.26), and the worker's queries: one name per kind and variant.

So one worker serves all trials, in any order; its environment lists the variants.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, LiteralString

from neo4j import ManagedTransaction

from benchmarks.apparatus.control import control
from benchmarks.topology.plan import Mode
from refresher import query
from refresher.flow.policy import effective_beta
from refresher.queries import MAX_SLOTS
from refresher.settings import RefreshMode


class Kind(StrEnum):
    """Kind of a key's query."""

    NEIGHBOURS = "neighbours"
    TWO_HOPS = "two_hops"
    SHORTEST_PATH = "shortest_path"


@dataclass(frozen=True, slots=True)
class QueryKey:
    """One key: a query of a kind with its params, and the degree of its person."""

    kind: Kind
    params: dict[str, Any]
    degree: int


# Bounds keep one hub from reading the whole graph, as in the demo's queries.
CYPHER: Final[dict[Kind, LiteralString]] = {
    Kind.NEIGHBOURS: """
MATCH (:Person {id: $person_id})-[:KNOWS]-(friend:Person)
RETURN DISTINCT friend.name AS name ORDER BY name LIMIT 50
""",
    Kind.TWO_HOPS: """
MATCH (p:Person {id: $person_id})-[:KNOWS]-(friend:Person)
WITH DISTINCT p, friend LIMIT 500
MATCH (friend)-[:KNOWS]-(other:Person)
WITH p, other LIMIT 20000
WITH DISTINCT p, other WHERE other <> p
RETURN count(other) AS reached
""",
    Kind.SHORTEST_PATH: """
MATCH (a:Person {id: $person_id}), (b:Person {id: $other_id})
MATCH path = shortestPath((a)-[:KNOWS*..6]-(b))
RETURN [person IN nodes(path) | person.name] AS names
""",
}
_DEGREE: Final[LiteralString] = "MATCH (p:Person {id: $person_id}) RETURN COUNT { (p)--() }"
VARIANTS: Final = "BENCH_TOPOLOGY_VARIANTS"
GRACE_SECONDS: Final = 3_600.0
_LOADS: Final = "topology:loads"
_BUSY_SECONDS: Final = "topology:busy-seconds"


def beta_of(mode: Mode, beta0: float, degree: int) -> float:
    """Return the effective β by the worker's own policy; 0 without early refresh."""
    if mode is Mode.NO_EARLY:
        return 0.0
    policy = RefreshMode.PLAIN if mode is Mode.PLAIN else RefreshMode.TOPOLOGY_SENSITIVE
    return effective_beta(policy, beta0, degree, 1.0)


@dataclass(frozen=True, slots=True)
class OriginLoad:
    """Loads counted since some moment. ``busy_seconds`` is the total time of queries, without pauses."""

    loads: int = 0
    busy_seconds: float = 0.0

    @classmethod
    async def of_workers(cls, control_client: Any) -> OriginLoad:
        """Return the workers' counts in the control database."""
        loads, busy_seconds = await control_client.mget(_LOADS, _BUSY_SECONDS)
        return cls(int(loads or 0), float(busy_seconds or 0))


def name_of(kind: Kind, variant: int) -> str:
    """Return the name of a query; ``variant`` is its index in the worker's list."""
    return f"{kind}_{variant}"


def _register(kind: Kind, variant: int, ttl_seconds: float, pause_seconds: float, mode: Mode, beta0: float) -> None:
    """Register a query with its mode's β, whatever TSPR_REFRESH_MODE is, since modes take turns every second."""

    def beta(own_beta0: float, degree: int, sigma: float) -> float:
        return beta_of(mode, own_beta0, degree) * sigma

    @query(
        name_of(kind, variant), ttl=ttl_seconds, grace=GRACE_SECONDS, beta=beta0, beta_function=beta, degree=_DEGREE,
        slots=MAX_SLOTS,
    )  # fmt: skip
    def load(tx: ManagedTransaction, **params: Any) -> list[dict[str, Any]]:
        began = time.perf_counter()
        rows = tx.run(CYPHER[kind], params).data()
        counts = control().pipeline(transaction=False)
        counts.incr(_LOADS)
        counts.incrbyfloat(_BUSY_SECONDS, time.perf_counter() - began)
        counts.execute()
        time.sleep(pause_seconds)
        return rows


for _variant, (_ttl_seconds, _pause_seconds, _mode, _beta0) in enumerate(json.loads(os.environ.get(VARIANTS, "[]"))):
    for _kind in Kind:
        _register(_kind, _variant, _ttl_seconds, _pause_seconds, Mode(_mode), _beta0)
