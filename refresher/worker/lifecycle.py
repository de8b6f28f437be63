"""The worker's parts that start and end with its processes, through Celery's signals and steps."""

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
        """The part of Celery's class in use here, which has no types."""

        def __init__(self, parent: Any, **options: Any) -> None: ...
else:
    from celery.bootsteps import StartStopStep as _Step

BEAT_SECONDS: Final = 1.0


class LifecycleStep(_Step):
    """The worker's start, as a step of Celery's worker, at which logging is set up even in an embedding program.

    It is created when the pool's size is known, before the pool is forked, and checks the worker's surroundings after
    the banner, before the worker consumes.
    """

    requires: ClassVar[tuple[str, ...]] = ("celery.worker.components:Pool",)

    def create(self, worker: Any) -> None:
        """Start the parts of the whole worker."""
        worker.app.refresher_lifecycle.begin(worker)

    def start(self, worker: Any) -> None:
        """Fix the pool, whose processes are forked by now, and run the checks while the worker's health is served."""
        read_all_in_time(worker.pool)
        worker.app.refresher_lifecycle.start(worker)


class HeartbeatStep(_Step):
    """A step of Celery's consumer that beats in its loop."""

    # The last step to start before the loop, after which the worker consumes.
    requires: ClassVar[tuple[str, ...]] = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._connecting(consumer)

    def start(self, consumer: Any) -> None:
        """Record that the worker consumes: Celery runs its loop after this."""
        # A green pool does not run Celery's loop.
        heartbeat_of(consumer.app).enter(Phase.CONSUMING, can_beat=consumer.hub is not None)

    def register_with_event_loop(self, consumer: Any, hub: Any) -> None:
        """Beat from now on until the connection is lost, when Celery cancels the timer."""
        hub.call_repeatedly(BEAT_SECONDS, heartbeat_of(consumer.app).beat)

    def stop(self, consumer: Any) -> None:
        """Record that Celery has lost the connection, or ends."""
        self._connecting(consumer)

    def _connecting(self, consumer: Any) -> None:
        # An application's own consumer does not beat at its attempts to connect.
        heartbeat_of(consumer.app).enter(Phase.CONNECTING, can_beat=hasattr(consumer, "beats_while_connecting"))


class Lifecycle:
    """The parts of a worker of ``app``, started and ended by the signals that it receives.

    The app keeps it, because Celery's signals hold only weak references.
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
            # With a name, because Celery 5.6 takes the same method of two objects for one receiver.
            signal.connect(receive, dispatch_uid=f"{id(self)}.{receive.__name__}")

    def begin(self, worker: Any) -> None:
        """Start the parts of the whole worker, whose pool is about to be made."""
        self._pid = os.getpid()
        self._slots.open(max(worker.concurrency or 1, worker.max_concurrency or 1))
        redact_debug_loggers()
        if getattr(self._app, "refreshes_only", False):
            remove_decompressors()
        self._metrics.start()
        self._monitors.worker = worker.hostname if worker.task_events else ""
        ours = {queue.name for queue in queues(self._settings.namespace, self._settings.broker_url)}
        if ours.isdisjoint(self._app.amqp.queues.consume_from):
            self._in_place = None  # only other workers refresh
        if not issubclass(worker.pool_cls, PreforkPool):  # whose processes start their own parts
            self._use_in_place(self._in_place)
        warn_of_unchecked_versions()

    def start(self, worker: Any) -> None:
        """Answer probes, now that the pool is forked, which their threads would hold up; meanwhile log problems."""
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
        if self._pid != os.getpid():  # the solo pool's only process is the main one
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
