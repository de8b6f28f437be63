"""Query of the stampedes: its load takes 200 ms and leaves a mark. Imported by worker and readers."""

from __future__ import annotations

import os
import time
from typing import Any, Final

import redis

from benchmarks.apparatus.entries import PayloadKind, Value, value_of
from refresher import query
from refresher.queries import MAX_CONCURRENCY

QUERY: Final = "herd"
CONTROL_URL: Final = "BENCH_CONTROL_REDIS_URL"
PAYLOAD: Final = "BENCH_PAYLOAD"
LOAD_SECONDS: Final = 0.2


def marks_of(number: int) -> str:
    """Return the name of the list, in the control database, that grows by one with each load of this number."""
    return f"loads:{number}"


@query(QUERY, ttl="1h", concurrency=MAX_CONCURRENCY, grace="1h")
def stampede(tx: Any, person_id: int) -> Value:
    """Load a value without a graph, so that each load takes the same time."""
    with redis.Redis.from_url(os.environ[CONTROL_URL]) as control:
        control.rpush(marks_of(person_id), os.getpid())
    time.sleep(LOAD_SECONDS)
    return value_of(PayloadKind(os.environ[PAYLOAD]))(person_id)
