"""Query of real processes, which pauses and counts its loads. Imported by the worker."""

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
LOADS: Final = "simulated-loads"
"""Key of the number of begun loads in the control database."""


# It has a degree so that each load queries the graph once.
@query(
    QUERY,
    ttl=float(os.environ.get(TTL, "60")),
    grace=float(os.environ.get(GRACE, "60")),
    degree="RETURN 1",
    slots=MAX_SLOTS,
)
def simulated(tx: Any, number: int) -> int:
    """Pause for as long as a load takes."""
    control().incr(LOADS)
    time.sleep(float(os.environ[LOAD]))
    return number
