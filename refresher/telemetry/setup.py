"""A worker's OpenTelemetry: each process that refreshes has an SDK of its own, set up as OpenTelemetry itself does it.

An SDK does not outlive a fork well: its threads are gone, its connections are the parent's, and two processes would
tell one set of numbers. So a pool that forks has it set up in each of its processes and never in the main one, whose
few events are in Prometheus and the log only. Where somebody has set one up already (``opentelemetry-instrument``, or
the application), that one is used as it is.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, Final

from celery import signals

from api_client.observe.events import together
from refresher.flow.events import WorkerEvents
from refresher.settings import WorkerSettings
from refresher.telemetry import otel_sdk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from celery import Celery

    from api_client.trigger.broker import Broker
    from refresher.flow.dead_letters import DeadLetter
    from refresher.queries import Registry

log: Final = logging.getLogger(__name__)


class Telemetry:
    """Tells OpenTelemetry what this process does; nothing without CACHE_OTEL.

    Args:
        settings: a worker's.
        broker: makes a way to the broker, for the process that asks it how many refreshes wait.
        letters: the dead letters that are kept.
        queries: what the worker can load.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        *,
        broker: Callable[[], Broker],
        letters: Callable[[], Iterable[DeadLetter]],
        queries: Registry,
    ) -> None:
        self._settings, self._broker, self._letters, self._queries = settings, broker, letters, queries
        self._events: WorkerEvents | None = None
        self._pid = 0

    def connect(self, app: Celery) -> None:
        """Begin and end with the processes of a worker of ``app``."""
        if not self._settings.otel:
            return

        def begin(sender: Any = None, **_: Any) -> None:
            if sender.app is app and _refreshes_itself(sender.pool):
                self.start()

        def begin_process(**_: Any) -> None:
            self.start()

        def end(**_: Any) -> None:
            self.close()

        self._receivers = (begin, begin_process, end)  # Celery's signals hold weak references only
        signals.worker_ready.connect(begin)
        signals.worker_process_init.connect(begin_process)
        signals.worker_process_shutdown.connect(end)
        signals.worker_shutdown.connect(end)

    def start(self) -> None:
        """Begin, in a process that refreshes. What keeps it from that is logged; the worker refreshes all the same."""
        if self._pid == os.getpid():
            return
        self._pid, self._events = os.getpid(), None
        try:
            otel_sdk.set_up()
            from refresher.telemetry.otel import OTelGauges, OTelWorkerEvents
        except ModuleNotFoundError as error:
            log.error("CACHE_OTEL is on, but %s is missing: %s", error.name, otel_sdk.INSTALL)
            return
        self._events = told = OTelWorkerEvents()
        OTelGauges(self._broker().waiting, self._letters, self._queries).observe(told.meter)

    def with_metrics(self, events: WorkerEvents | None) -> WorkerEvents | None:
        """Return what tells ``events``, and OpenTelemetry where it has begun in this process."""
        ours = self._events if self._pid == os.getpid() else None
        told = [one for one in (events, ours) if one is not None]
        return together(told, WorkerEvents) if told else None

    def close(self) -> None:
        """Send what is left, for a few seconds at most: nothing else does when a pool's process ends."""
        if self._events is not None and self._pid == os.getpid():
            otel_sdk.send_what_is_left()


def _refreshes_itself(pool: Any) -> bool:
    """Tell whether the process that has this pool refreshes itself, for it forks none that do."""
    from celery.concurrency.prefork import TaskPool

    return not isinstance(pool, TaskPool)
