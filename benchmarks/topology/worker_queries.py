"""The queries of the worker: each kind under a name for each (TTL, pause, mode, β0) of the run.

One worker so serves all cells, whatever their order. Which there are, it is told by its environment.
"""

from __future__ import annotations

import json
import os
import time
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import redis

from benchmarks.topology.asked import CYPHER, DEGREE, Kind, beta_of
from benchmarks.topology.levels import Mode
from benchmarks.topology.origin_load import BUSY_FIELD, LOADS_FIELD, LOADS_KEY
from refresher import query
from refresher.queries import MAX_CONCURRENCY

if TYPE_CHECKING:
    from neo4j import ManagedTransaction

CONTROL_URL: Final = "BENCH_CONTROL_REDIS_URL"
VARIANTS: Final = "BENCH_TOPOLOGY_VARIANTS"
GRACE_SECONDS: Final = 3_600.0


def name_of(kind: Kind, variant: int) -> str:
    """Return the name of a query; ``variant`` is its place in the list that the worker was told."""
    return f"{kind}_{variant}"


def _register(kind: Kind, variant: int, ttl_seconds: float, pause_seconds: float, mode: Mode, beta0: float) -> None:
    """Register one. Its β is that of its mode, whatever TSPR_REFRESH_MODE is, for modes take turns every second."""

    def beta(own_beta0: float, degree: int, sigma: float) -> float:
        return beta_of(mode, own_beta0, degree) * sigma

    @query(
        name_of(kind, variant), ttl=ttl_seconds, grace=GRACE_SECONDS, beta=beta0, beta_function=beta, degree=DEGREE,
        concurrency=MAX_CONCURRENCY,
    )  # fmt: skip
    def load(tx: ManagedTransaction, **params: Any) -> list[dict[str, Any]]:
        began = time.perf_counter()
        rows = tx.run(CYPHER[kind], params).data()
        _count(time.perf_counter() - began)
        time.sleep(pause_seconds)
        return rows


def _count(busy_seconds: float) -> None:
    pipeline = _control().pipeline(transaction=False)
    pipeline.hincrby(LOADS_KEY, LOADS_FIELD, 1)
    pipeline.hincrbyfloat(LOADS_KEY, BUSY_FIELD, busy_seconds)
    pipeline.execute()


@cache
def _control() -> redis.Redis:
    return redis.Redis.from_url(os.environ[CONTROL_URL])


for _variant, (_ttl_seconds, _pause_seconds, _mode, _beta0) in enumerate(json.loads(os.environ.get(VARIANTS, "[]"))):
    for _kind in Kind:
        _register(_kind, _variant, _ttl_seconds, _pause_seconds, Mode(_mode), _beta0)
