"""Queries for runs that are watched from outside: one that only fails, and slowly, and one that fails on demand."""

from __future__ import annotations

import time
from typing import Any

from refresher import query
from tests.support.scripted_queries import _control

POISONED_LOAD_SECONDS = 0.3


@query("poisoned", ttl="300ms", grace="10m")
def poisoned(tx: Any, key: str) -> None:
    """Take a worker's time, and fail: a mistake in the loader."""
    with _control() as control:
        control.rpush(f"calls:{key}", "poisoned")
    time.sleep(POISONED_LOAD_SECONDS)
    raise ValueError("poisoned")
