"""A query that is loaded in batches, and records each load for a test, which scripts loads by the control server."""

from __future__ import annotations

import os
import signal
from typing import Any, Final

import redis

from refresher import query
from tests.support.scripted_queries import CONTROL_URL

QUERY: Final = "squares"
BATCH: Final = 50
LOADS: Final = "loads"
FAULTS: Final = "faults"
_SQUARES: Final = "UNWIND $numbers AS number RETURN number * number AS square"
_DEGREES: Final = "UNWIND $calls AS call RETURN call.n + 1"


@query(QUERY, ttl="1h", grace="1h", batch=BATCH, degree=_DEGREES)
def squares(tx: Any, calls: list[dict[str, int]]) -> list[int]:
    """Return the square of each number ``n``."""
    numbers = [call["n"] for call in calls]
    with redis.Redis.from_url(os.environ[CONTROL_URL], decode_responses=True) as control:
        control.rpush(LOADS, len(numbers))
        faults = dict(zip(numbers, control.hmget(FAULTS, [str(number) for number in numbers]), strict=True))
    found = [record["square"] for record in tx.run(_SQUARES, numbers=numbers)]
    if "kill" in faults.values():
        os.kill(os.getpid(), signal.SIGKILL)
    if "raise" in faults.values():
        raise ValueError("one of these numbers is not to be had")
    return [square for number, square in zip(numbers, found, strict=True) if faults[number] != "missing"]
