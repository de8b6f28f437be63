"""Queries for runs that are monitored from outside: one that always fails, slowly, and one that fails on demand."""

from __future__ import annotations

import random
import time
from typing import Any

from refresher import TransientFailure, query
from refresher.checker.nodes import READ_NODE
from tests.support.scripted_queries import control_redis

POISONED_LOAD_SECONDS = 0.3
MAX_SOAKED_SECONDS = 0.1


@query("poisoned", ttl="300ms", slots=64, grace="10m")
def poisoned(tx: Any, key: str) -> None:
    """Take some time, and fail: a bug in the loader."""
    with control_redis() as control:
        control.rpush(f"calls:{key}", "poisoned")
    time.sleep(POISONED_LOAD_SECONDS)
    raise ValueError("poisoned")


FAILING = "failing_percent"
"""A key of the control's database: the percentage of loads that fail."""


@query("soaked", ttl="2s", slots=64, grace="10m")
def soaked(tx: Any, node: str) -> dict[str, Any]:
    """Read a watched node's version, and take some more time; fail by a coin seeded with node and load."""
    with control_redis() as control:
        number = control.incr(f"loads:{node}")
        percent = int(control.get(FAILING) or 0)
    drawn = random.Random(f"{node}:{number}")  # noqa: S311 - a coin
    if drawn.random() * 100 < percent:
        raise TransientFailure("tails")
    record = tx.run(READ_NODE, node=node).single(strict=True)
    # This load does not see writes and invalidations that happen meanwhile.
    time.sleep(drawn.uniform(0, MAX_SOAKED_SECONDS))
    return {"version": record["version"]}
