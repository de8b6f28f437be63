"""Queries under budgets. Each load records its begin, and how many were in progress, for the test."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from api_client.protocol import budget
from refresher import query
from tests.support.scripted_queries import GATE_SECONDS, control_redis

SHARE_VARIABLE: Final = "TEST_SHARE_SECONDS"
"""The variable that says for how long this worker's shares hold; without it, as long as in production."""
if SHARE_VARIABLE in os.environ:
    budget._HOLDS_US = round(1e6 * float(os.environ[SHARE_VARIABLE]))  # noqa: SLF001 - a worker has no fixtures

AT_ONCE: Final = 2
RATE: Final = 20.0
LOAD_SECONDS: Final = 0.1
BEGUN, IN_PROGRESS, MOST, HELD = "begun", "in_progress", "most", "held"


@contextmanager
def _load(kind: str, key: str) -> Iterator[None]:
    with control_redis() as control:
        at_once = int(control.incr(f"{IN_PROGRESS}:{kind}"))
        control.zadd(f"{MOST}:{kind}", {"most": at_once}, gt=True)
        control.rpush(f"{BEGUN}:{kind}", f"{time.monotonic()} {key} {os.getpid()}")
        try:
            yield
        finally:
            control.decr(f"{IN_PROGRESS}:{kind}")


@query("few", ttl="1h", grace="1h", concurrency=AT_ONCE, slots=64)
def few(tx: Any, key: str) -> str:
    """Return the key; few keys are loaded at once, and a held load waits until the test releases it."""
    with _load("few", key):
        with control_redis() as control:
            if control.sismember(HELD, key):
                control.blpop([f"gate:{key}"], timeout=GATE_SECONDS)
        time.sleep(LOAD_SECONDS)
    return key


@query("paced", ttl="1h", grace="1h", rate=RATE, slots=64)
def paced(tx: Any, key: str) -> str:
    """Return the key; the number of loads per second is limited."""
    with _load("paced", key):
        return key


@query("free", ttl="1h", grace="1h", slots=64)
def free(tx: Any, key: str) -> str:
    """Return the key; only the namespace has a budget."""
    with _load("free", key):
        time.sleep(LOAD_SECONDS)
    return key
