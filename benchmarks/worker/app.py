"""The worker's Celery app: that of `make_app`, with additional no-op tasks for comparison.

``celery -A benchmarks.worker.app worker`` is set up from the environment, with all settings as in production, except
for the pool, and for events, which are switched on and off while it runs.
"""

from __future__ import annotations

import time
from typing import Any, Final

from celery import Celery

from benchmarks.apparatus.control import control
from refresher.worker.app import make_app

ARRIVED: Final = "arrived"
OPEN: Final = "open"
MARKS: Final = "marks"
GATE: Final = "bench.gate"
MARK: Final = "bench.mark"
NOTHING: Final = "bench.nothing"
PAUSE: Final = "bench.pause"
_MAX_WAIT_SECONDS: Final = 60


def __getattr__(name: str) -> Any:
    # Made on first access, so that importing this module reads no environment.
    if name == "app":
        globals()["app"] = app = _made()
        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _made() -> Celery:
    app = make_app()
    # With -E, events could not be switched off.
    app.conf.worker_send_task_events = False
    # Otherwise the guard would drop messages that are no refreshes.
    app.refreshes_only = False
    for name, function in ((GATE, _gate), (MARK, _mark), (NOTHING, _nothing), (PAUSE, _pause)):
        app.task(name=name)(function)
    return app


def _gate(number: int) -> None:
    """Hold a process or thread of the pool until the gate is opened, once for each."""
    control().rpush(ARRIVED, number)
    control().blpop([OPEN], _MAX_WAIT_SECONDS)


def _mark() -> None:
    """Record the time (monotonic, the same for all processes of a machine)."""
    control().rpush(MARKS, repr(time.monotonic()))


def _nothing(number: int) -> None:
    """Do nothing."""


def _pause(channel: str, pause_seconds: float) -> None:
    """Pause, and announce when that began, as a commit would."""
    began = time.monotonic()
    time.sleep(pause_seconds)
    control().publish(channel, repr(began))
