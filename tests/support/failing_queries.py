"""A query for runs that are monitored from outside, which fails on demand."""

from __future__ import annotations

import random
import time
from typing import Any

from refresher import TransientFailure, query
from refresher.checker.nodes import READ_NODE
from tests.support.scripted_queries import control_redis

MAX_SOAKED_SECONDS = 0.1
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
