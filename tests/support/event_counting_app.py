"""The worker's app, with its events counted in the control's Redis by all processes of the worker.

It is patient with its broker: on a busy machine either may stand still for so long that the other would disconnect.
"""

from __future__ import annotations

from api_client.config import broker
from refresher import WorkerEvents
from refresher.worker.app import make_app
from tests.support.scripted_queries import control_redis
from tests.support.waiting import MAX_WAIT_SECONDS

EVENT_COUNTS = "told"
"""A hash: the number of each event."""


class CountingEvents(WorkerEvents):
    """Counts the events that tests check."""

    def committed(self, query: str, *, delta_seconds: float, run_seconds: float, as_stale: bool) -> None:
        _count("committed")

    def rejected(self, query: str, *, why: str) -> None:
        _count(f"rejected: {why}")

    def skipped(self, query: str, *, why: str) -> None:
        _count(f"skipped: {why}")

    def retried(self, query: str, *, kind: str, attempt: int, pause_seconds: float) -> None:
        _count(f"retried: {kind}")

    def failed(self, query: str, *, kind: str, attempts: int) -> None:
        _count(f"failed: {kind}")

    def message_dropped(self, *, reason: str) -> None:
        _count(f"dropped: {reason}")


def _count(word: str) -> None:
    with control_redis() as control:
        control.hincrby(EVENT_COUNTS, word)


broker.SOCKET_SECONDS = broker.HEARTBEAT_SECONDS = round(MAX_WAIT_SECONDS)  # type: ignore[misc]
app = make_app(events=CountingEvents())
