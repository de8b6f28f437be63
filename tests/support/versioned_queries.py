"""A query whose value says which version of the source it read, and whose loads a test holds and lets fail.

All of it lies in the control's Redis (`scripted_queries`), which no fault meets: ``version:<key>`` is the source,
``calls:<key>`` has the pid of each load that began, loads of a key wait while there is ``held:<key>`` until an element
of ``gate:<key>`` comes, and ``failing`` is how many loads of a hundred fail, by a coin seeded with key and load.
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
    """The version is read first: a load that is held has an old one when it goes on."""
    with control_redis() as control:
        version = int(control.get(f"version:{key}") or 0)
        # Read before the call is told: the test that waits for the call may change them at once.
        is_held, percent = control.exists(f"held:{key}"), int(control.get("failing") or 0)
        number = control.rpush(f"calls:{key}", os.getpid())
        if is_held:
            control.blpop([f"gate:{key}"], timeout=GATE_SECONDS)
    if random.Random(f"{key}:{number}").random() * 100 < percent:  # noqa: S311 - a coin
        raise TransientFailure("tails")
    return {"version": version}
