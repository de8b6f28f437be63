"""Parts of a worker that begin and end with its processes: by its signals, and by steps of its worker and consumer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from celery import Celery, signals
from celery.concurrency.prefork import TaskPool as PreforkPool

from api_client.config.broker import queues
from api_client.read.in_place import LoadsInPlace, use
from refresher.ops.health_server import HealthServer
from refresher.ops.heartbeat import Phase, heartbeat_of
from refresher.settings import WorkerSettings
from refresher.telemetry.prometheus import MetricsServer
from refresher.telemetry.setup import Telemetry
from refresher.worker.celery_fixes import warn_of_unchecked_versions
from refresher.worker.celery_fixes.app import redact_debug_loggers, remove_decompressors
from refresher.worker.celery_fixes.pool_pipes import read_all_in_time
from refresher.worker.monitors import Monitors
from refresher.worker.periodic import Periodic
from refresher.worker.runtime import PerProcess
from refresher.worker.slots import NodeSlots

if TYPE_CHECKING:

    class _Step:
        """The used part of Celery's class, which has no types."""

        def __init__(self, parent: Any, **options: Any) -> None: ...
else:
    from celery.bootsteps import StartStopStep as _Step

BEAT_SECONDS: Final = 1.0


class LifecycleStep(_Step):
    """The beginning, as a step of Celery's worker: logging is set up by then, in a program that embeds one too.

    It begins when the pool's size is known, before the pool is forked; and checks what is around the worker, after the
    banner, before the worker consumes.
    """

    requires: ClassVar[tuple[str, ...]] = ("celery.worker.components:Pool",)

    def create(self, worker: Any) -> None:
        """Begin."""
        worker.app.refresher_lifecycle.begin(worker)

    def start(self, worker: Any) -> None:
        """Mend the pool, whose processes are forked, and run the checks. The worker's health is served meanwhile."""
        read_all_in_time(worker.pool)
        worker.app.refresher_lifecycle.start(worker)


class HeartbeatStep(_Step):
    """A step of Celery's consumer that beats in its loop."""

    # The last to start before the loop: then the worker consumes.
    requires: ClassVar[tuple[str, ...]] = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._connecting(consumer)

    def start(self, consumer: Any) -> None:
        """Celery starts what needs the connection, and its loop after that."""
        # A green pool has no loop of Celery's.
        heartbeat_of(consumer.app).enter(Phase.CONSUMING, can_beat=consumer.hub is not None)

    def register_with_event_loop(self, consumer: Any, hub: Any) -> None:
        """Beat from now on, until the connection is lost: Celery cancels with it what was registered here."""
        hub.call_repeatedly(BEAT_SECONDS, heartbeat_of(consumer.app).beat)

    def stop(self, consumer: Any) -> None:
        """Celery has lost the connection, or ends."""
        self._connecting(consumer)

    def _connecting(self, consumer: Any) -> None:
        # Another consumer, an application's own, does not beat at its attempts.
        heartbeat_of(consumer.app).enter(Phase.CONNECTING, can_beat=hasattr(consumer, "beats_while_connecting"))


class Lifecycle:
    """Begins with a worker of ``app``, and receives its signals.

    Kept by the app: Celery's signals hold weak references only.
    """

    def __init__(
        self,
        app: Celery,
        settings: WorkerSettings,
        *,
        slots: NodeSlots,
        runtimes: PerProcess,
        in_place: LoadsInPlace,
        monitors: Monitors,
        metrics: MetricsServer,
        telemetry: Telemetry,
        health: HealthServer,
        periodic: Sequence[Periodic],
    ) -> None:
        self._app, self._settings, self._slots = app, settings, slots
        self._runtimes, self._metrics, self._health, self._periodic = runtimes, metrics, health, periodic
        self._in_place: LoadsInPlace | None = in_place
        self._pid = os.getpid()
        self._monitors, self._telemetry = monitors, telemetry
        for signal, receive in (
            (signals.worker_ready, self._begin_to_consume),
            (signals.worker_process_init, self._begin_process),
            (signals.worker_process_shutdown, self._end_process),
            (signals.worker_shutting_down, self._begin_to_stop),
            (signals.worker_shutdown, self._end),
        ):
            # By a name, since Celery 5.6 takes one method of two objects for one receiver.
            signal.connect(receive, dispatch_uid=f"{id(self)}.{receive.__name__}")

    def begin(self, worker: Any) -> None:
        """Begin what the whole worker has; its pool is about to be made."""
        self._pid = os.getpid()
        self._slots.open(max(worker.concurrency or 1, worker.max_concurrency or 1))
        redact_debug_loggers()
        if getattr(self._app, "refreshes_only", False):
            remove_decompressors()
        self._metrics.start()
        self._monitors.worker = worker.hostname if worker.task_events else ""
        ours = {queue.name for queue in queues(self._settings.namespace, self._settings.broker_url)}
        if ours.isdisjoint(self._app.amqp.queues.consume_from):
            self._in_place = None  # other workers refresh
        if not issubclass(worker.pool_cls, PreforkPool):  # whose processes begin by themselves
            self._use_in_place(self._in_place)
        warn_of_unchecked_versions()

    def start(self, worker: Any) -> None:
        """Answer probes, once there is a pool, whose forks their threads would hold up; log what is wrong meanwhile."""
        from refresher.ops.startup_checks import log_problems

        self._health.start()
        log_problems(self._settings, self._app, worker.pool_cls)

    def _begin_to_consume(self, sender: Any = None, **_: Any) -> None:
        if getattr(sender, "app", None) is self._app:
            if not isinstance(sender.pool, PreforkPool):
                self._telemetry.start()
            for one in self._periodic:
                one.start()

    def _use_in_place(self, loader: LoadsInPlace | None) -> None:
        use(self._settings.redis_url, self._settings.namespace, loader)

    def _begin_process(self, **_: Any) -> None:
        self._use_in_place(self._in_place)
        self._telemetry.start()
        if self._pid != os.getpid():  # the solo pool's one process is the main one
            self._metrics.after_fork()
            self._health.after_fork()

    def _begin_to_stop(self, **_: Any) -> None:
        self._app.refresher_shutdown.set()
        self._health.stopping()
        for one in self._periodic:
            one.stop()

    def _end_process(self, **_: Any) -> None:
        self._runtimes.close()
        self._telemetry.close()

    def _end(self, **_: Any) -> None:
        self._use_in_place(None)
        self._end_process()
        self._metrics.close()
        self._health.close()
