"""Queries whose keys load once and then hang or fail, by their name; and one whose keys always load."""

from __future__ import annotations

import os
import time
from typing import Any

from refresher import TransientFailure, query
from tests.support.scripted_queries import GATE_SECONDS, control_redis


def _count(key: str) -> int:
    with control_redis() as control:
        return int(control.rpush(f"calls:{key}", os.getpid()))


@query("sick", ttl="300ms", grace="1h")
def sick(tx: Any, key: str) -> int:
    """Return the number of the first load; later ones end as the key's name says."""
    number = _count(key)
    if number > 1:
        if key.startswith("hangs"):
            time.sleep(GATE_SECONDS)
        raise TransientFailure("as the name says")
    return number


@query("well", ttl="1s", grace="1h")
def well(tx: Any, key: str) -> int:
    """Return the number of the load."""
    return _count(key)
