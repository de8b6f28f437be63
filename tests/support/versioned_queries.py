"""A query whose value has the version of the source it read, and whose loads a test holds or fails.

Its state is in the control's Redis (`scripted_queries`), which has no faults: ``version:<key>`` is the source,
``calls:<key>`` has the pid of each load that began, loads of a key wait while there is ``held:<key>`` until an element
of ``gate:<key>`` comes, and ``failing`` is the percentage of loads that fail, by a coin seeded with key and load.
"""

from __future__ import annotations

import os
import random
from typing import Any

from refresher import TransientFailure, query
from tests.support.scripted_queries import GATE_SECONDS, control_redis

VERSIONED = "versioned"


@query(VERSIONED, ttl="1h", slots=64, grace="1h")
def versioned(tx: Any, key: str) -> dict[str, Any]:
    """Return the version, which is read first: a held load has an old one when it continues."""
    with control_redis() as control:
        version = int(control.get(f"version:{key}") or 0)
        # Read before the call is recorded: the test that waits for the call may change them at once.
        is_held, percent = control.exists(f"held:{key}"), int(control.get("failing") or 0)
        number = control.rpush(f"calls:{key}", os.getpid())
        if is_held:
            control.blpop([f"gate:{key}"], timeout=GATE_SECONDS)
    if random.Random(f"{key}:{number}").random() * 100 < percent:  # noqa: S311 - a coin
        raise TransientFailure("tails")
    return {"version": version}
