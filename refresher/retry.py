"""Backoff between attempts, and between refreshes that are given up. Pure."""

from __future__ import annotations

import math
from typing import Final

BASE_SECONDS: Final = 1.0
CAP_SECONDS: Final = 15.0
SHORTEST_SECONDS: Final = 0.05
COOLING_SPREAD: Final = 0.25
FAULTS_OF_ALL: Final = frozenset(
    {
        "network",
        "graph_unavailable",
        "auth",
        "configuration",
        "driver_shared",
        "unknown_query",
        "bookmark",
        "bookmark_timeout",
    }
)


def pause_seconds(attempt: int, multiplier: float, u: float) -> float:
    """Return the pause after the failed ``attempt`` (1 is the first): exponential with full jitter.

    ``u · min(15, 1 · multiplier**(attempt − 1))`` seconds, u uniform in [0, 1), and at least 50 ms: a pause of
    nothing would meet the same fault again. (M. Brooker, "Exponential Backoff And Jitter", 2015.)
    """
    exponent = min(attempt - 1, 64)
    bound = min(CAP_SECONDS, BASE_SECONDS * multiplier**exponent)
    return max(SHORTEST_SECONDS, u * bound)


def cooling_spread(u: float) -> float:
    """Return the factor of a cooling's length, ¾ to 1: keys that failed together are not asked for together again."""
    return 1 - COOLING_SPREAD * u


def is_fault_of_the_key(kind: str) -> bool:
    """Tell whether a failure of this kind speaks against the key, so that it cools longer each time in a row.

    The others say that the graph, or this worker, is at fault: they meet every key, and pass with their cause. A pause
    that had grown meanwhile would keep values stale long after it.
    """
    return kind not in FAULTS_OF_ALL


def whole_seconds(pause: float) -> int:
    """Return a pause as Celery may be given it: whole seconds, 1 to 15 (a fraction fails on RabbitMQ)."""
    return min(max(1, math.ceil(pause)), int(CAP_SECONDS))
