"""Events of loads in place for Flower and `celery events`, as tasks without a message."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from time import monotonic, time
from uuid import uuid4

from celery import Celery

from api_client.protocol.messages import RefreshItem
from api_client.trigger.broker import monitoring_options
from refresher.flow.outcome import Outcome, OutcomeKind, summary

RETRY_SECONDS = 60.0


class Monitors:
    """Shows a worker's loads in place to monitors. Thread-safe.

    Attributes:
        worker: the worker's name; "" if it sends no task events.
    """

    def __init__(self, app: Celery, namespace: str) -> None:
        self._app, self._namespace = app, namespace
        self.worker: str = ""
        self._failed_until = -inf

    def show(self, items: Sequence[RefreshItem], outcomes: Sequence[Outcome], run_seconds: float) -> None:
        """Send a single event for a finished load, with everything in it, so that the load waits for no other.

        Raises:
            Exception: the broker did not take it; then none is sent for `RETRY_SECONDS`.
        """
        if not self.worker or monotonic() < self._failed_until:
            return
        shown, ended_at = monitoring_options(items, self._namespace), time()
        failed = all(outcome.kind is OutcomeKind.FAILED for outcome in outcomes)
        text = f"in place: {summary(outcomes)}"
        try:
            with self._app.events.default_dispatcher(hostname=self.worker) as events:
                events.send(
                    "task-failed" if failed else "task-succeeded",
                    uuid=str(uuid4()),
                    name=shown["shadow"],
                    args=shown["argsrepr"],
                    kwargs=shown["kwargsrepr"],
                    received=ended_at - run_seconds,
                    started=ended_at - run_seconds,
                    runtime=run_seconds,
                    **({"exception": text} if failed else {"result": text}),
                )
        except Exception:
            self._failed_until = monotonic() + RETRY_SECONDS
            raise
