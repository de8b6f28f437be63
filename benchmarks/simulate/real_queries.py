"""Query of the real run of a validation: a pause, and a mark of when it began. Imported by the worker."""

from __future__ import annotations

import os
import time
from functools import cache
from typing import Any, Final

import redis

from refresher import query
from refresher.queries import MAX_SLOTS

QUERY: Final = "simulated"
CONTROL_URL: Final = "BENCH_CONTROL_REDIS_URL"
LOAD: Final = "BENCH_LOAD_SECONDS"
TTL: Final = "BENCH_TTL_SECONDS"
GRACE: Final = "BENCH_GRACE_SECONDS"
SLOWER: Final = "simulated-slower"
"""In the control database: so many times as long as its time a load takes; absent: 1."""
MARKS: Final = "simulated-loads"
"""The list, in the control database, of loads: the key's number, and when it began in monotonic seconds, which all
processes of a machine share."""


@cache
def _control() -> redis.Redis:
    return redis.Redis.from_url(os.environ[CONTROL_URL])


# The degree is one of the params, so that the keys have those of the simulation; it is read as any other is.
@query(
    QUERY,
    ttl=float(os.environ.get(TTL, "60")),
    grace=float(os.environ.get(GRACE, "60")),
    degree="RETURN $degree",
    slots=MAX_SLOTS,
)
def simulated(tx: Any, number: int, degree: int) -> int:
    """Pause for as long as a load takes."""
    with _control().pipeline(transaction=False) as pipeline:
        pipeline.rpush(MARKS, f"{number} {time.monotonic()!r}")
        pipeline.get(SLOWER)
        slower = pipeline.execute()[1]
    time.sleep(float(os.environ[LOAD]) * float(slower or 1))
    return number
