"""Parts of a worker that begin and end with its processes, on Celery's signals."""

from __future__ import annotations

from typing import Any

from celery import Celery, signals

from refresher.ops.health_server import HealthServer
from refresher.settings import WorkerSettings
from refresher.telemetry.prometheus import MetricsServer
from refresher.worker.celery_fixes import warn_of_unchecked_versions
from refresher.worker.celery_fixes.app import redact_debug_loggers, remove_decompressors
from refresher.worker.runtime import PerProcess
from refresher.worker.slots import NodeSlots
from refresher.worker.version_registration import VersionHeartbeat


class Lifecycle:
    """Receives the signals of a worker of ``app``. Kept by the app: Celery's signals hold weak references only."""

    def __init__(
        self,
        app: Celery,
        settings: WorkerSettings,
        *,
        slots: NodeSlots,
        runtimes: PerProcess,
        metrics: MetricsServer,
        health: HealthServer,
        versions: VersionHeartbeat,
    ) -> None:
        self._app, self._settings, self._slots = app, settings, slots
        self._runtimes, self._metrics, self._health, self._versions = runtimes, metrics, health, versions
        for signal, receive in (
            (signals.celeryd_after_setup, self._open_slots),
            (signals.worker_init, self._begin),
            (signals.worker_ready, self._begin_to_consume),
            (signals.worker_process_init, self._begin_process),
            (signals.worker_process_shutdown, self._end_process),
            (signals.worker_shutting_down, self._begin_to_stop),
            (signals.worker_shutdown, self._end),
        ):
            # By a name, since Celery 5.6 takes one method of two objects for one receiver.
            signal.connect(receive, dispatch_uid=f"{id(self)}.{receive.__name__}")

    def _open_slots(self, instance: Any = None, **_: Any) -> None:
        if getattr(instance, "app", None) is self._app:
            # Before the pool is forked, and once Celery knows how large it is, or may become.
            self._slots.open(max(instance.concurrency or 1, instance.max_concurrency or 1))

    def _begin(self, sender: Any = None, **_: Any) -> None:
        if getattr(sender, "app", self._app) is not self._app:
            return
        from refresher.ops.startup_checks import log_problems

        redact_debug_loggers()
        if getattr(self._app, "refreshes_only", False):
            remove_decompressors()
        self._health.start()  # before the checks: it answers while they run
        log_problems(self._settings, self._app)
        self._metrics.start()
        warn_of_unchecked_versions()

    def _begin_to_consume(self, sender: Any = None, **_: Any) -> None:
        if getattr(sender, "app", None) is self._app:
            self._versions.start()

    def _begin_process(self, **_: Any) -> None:
        self._metrics.after_fork()
        self._health.after_fork()

    def _begin_to_stop(self, **_: Any) -> None:
        self._app.refresher_shutdown.set()
        self._health.stopping()
        self._versions.stop()

    def _end_process(self, **_: Any) -> None:
        self._runtimes.close()

    def _end(self, **_: Any) -> None:
        self._runtimes.close()
        self._metrics.close()
        self._health.close()
