"""The app of a worker that also records in the control's Redis how each refresh ended.

So a worker's counts can be compared with the steps that Redis received from it.
"""

from __future__ import annotations

import os
from typing import Final

from refresher import WorkerEvents, make_app
from refresher.worker import redis_link
from tests.support.scripted_queries import control_redis
from tests.support.waiting import MAX_WAIT_SECONDS

PATIENT: Final = "TEST_PATIENT_WORKER"
"""The variable that lets it wait on a Redis that stands still, as long as a test waits."""

RECORDED_EVENTS: Final = "worker-events"


class _Recorder(WorkerEvents):
    def _record(self, event: str, why: str = "") -> None:
        with control_redis() as control:
            control.rpush(RECORDED_EVENTS, f"{event} ({why})" if why else event)

    def committed(self, query: str, *, delta_seconds: float, run_seconds: float, as_stale: bool) -> None:
        self._record("committed", "as stale" if as_stale else "")

    def rejected(self, query: str, *, why: str) -> None:
        self._record("rejected", why)

    def skipped(self, query: str, *, why: str) -> None:
        self._record("skipped", why)

    def failed(self, query: str, *, kind: str, attempts: int) -> None:
        self._record("failed", kind)


if PATIENT in os.environ:
    redis_link.TIMEOUT_SECONDS = MAX_WAIT_SECONDS  # type: ignore[misc]
app = make_app(events=_Recorder())
