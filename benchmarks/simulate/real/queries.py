"""Query of real processes: a pause, and a count of its loads. Imported by the worker."""

from __future__ import annotations

import os
import time
from typing import Any, Final

from benchmarks.apparatus.control import control
from refresher import query
from refresher.queries import MAX_SLOTS

QUERY: Final = "simulated"
LOAD: Final = "BENCH_LOAD_SECONDS"
TTL: Final = "BENCH_TTL_SECONDS"
GRACE: Final = "BENCH_GRACE_SECONDS"
SLOWER: Final = "simulated-slower"
"""In the control database: so many times as long as its time a load takes; absent: 1."""
LOADS: Final = "simulated-loads"
"""In the control database: the number of loads that have begun."""


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
    begin = control().pipeline(transaction=False)
    begin.incr(LOADS)
    begin.get(SLOWER)
    slower = begin.execute()[-1]
    time.sleep(float(os.environ[LOAD]) * float(slower or 1))
    return number
