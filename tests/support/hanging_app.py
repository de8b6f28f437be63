"""A worker that probes its health at each request, and whose main loop a test can block by remote control."""

from __future__ import annotations

import os
from typing import Any

from celery.worker.control import control_command

import refresher
from refresher.ops import health
from tests.support.scripted_queries import GATE_SECONDS, control_redis

health.TTL_SECONDS = 0.1  # type: ignore[misc]
if "TEST_STUCK_SECONDS" in os.environ:
    health.stuck_seconds = lambda settings: float(os.environ["TEST_STUCK_SECONDS"])
app = refresher.make_app()


@control_command()  # type: ignore[untyped-decorator, unused-ignore]
def hang(state: Any) -> None:
    """Block the loop until the gate "loop" opens."""
    with control_redis() as control:
        control.rpush("hangs", "yes")
        control.blpop(["gate:loop"], timeout=GATE_SECONDS)
