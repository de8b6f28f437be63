"""The Celery app, with the reason for each setting.

`celery -A refresher` uses the app of `make_app`; `install` adds the task to an application's own app.
"""

from __future__ import annotations

import functools
import logging
from typing import Any, Final

import click
import redis
from celery import Celery

from api_client.config.broker import consumer_settings, queue_for, queues
from api_client.config.broker_url import connection_settings
from api_client.errors import ConfigurationError
from api_client.protocol.keys import pending_tags_key
from api_client.transport.redis_py import connect
from api_client.trigger.broker import CeleryBroker
from api_client.trigger.private_app import PrivateApp
from refresher.feed.state import read_state
from refresher.feed.watches import check_watched
from refresher.flow.dead_letters import DeadLetters
from refresher.flow.ports import CompositeWorkerEvents, WorkerEvents, events_of
from refresher.flower import set_up_flower
from refresher.ops.budgets import ALL, loads_in_progress
from refresher.ops.forks import fork_gate
from refresher.ops.health import Health
from refresher.ops.health_server import HealthServer
from refresher.ops.heartbeat import Heartbeat
from refresher.queries import registry
from refresher.query_modules import import_from_working_directory, import_queries
from refresher.settings import WorkerSettings
from refresher.telemetry.metrics import WorkerGauges
from refresher.telemetry.prometheus import GaugeCollector, MetricsServer
from refresher.telemetry.setup import Telemetry
from refresher.worker.celery_fixes.app import translate_broker_urls
from refresher.worker.feed import feed
from refresher.worker.in_place import InPlace
from refresher.worker.lifecycle import HeartbeatStep, Lifecycle, LifecycleStep
from refresher.worker.monitors import Monitors
from refresher.worker.periodic import Periodic, in_redis
from refresher.worker.runtime import PerProcess, Runtime
from refresher.worker.shutdown import ShutdownFlag
from refresher.worker.slots import NodeSlots
from refresher.worker.tag_upkeep import UPKEEP_SECONDS, TagUpkeep
from refresher.worker.tasks import add_task, resend
from refresher.worker.version_registration import HEARTBEAT_SECONDS, register_versions

log: Final = logging.getLogger(__name__)

CONSUMER: Final = "refresher.worker.celery_fixes.consumer:RefreshConsumer"
SCRAPE_SECONDS: Final = 1.0


class RefreshApp(PrivateApp):
    """The workers' app."""

    log_cls = "refresher.worker.celery_fixes.log_escaping:EscapingLogging"


def make_app(settings: WorkerSettings | None = None, *, events: WorkerEvents | None = None) -> Celery:
    """Return a Celery app for refreshes, set up from ``settings`` (default: from the environment).

    It becomes no thread's current app, and not the default app, until one of its workers starts. It has no fixups: if
    queries need a set-up Django, use a worker of the application's own app, with `install`.

    Raises:
        ConfigurationError: a setting is wrong, or a module of REFRESHER_QUERIES can't be imported.
    """
    chosen = WorkerSettings.given_or_from_env(settings)
    app = RefreshApp.configured("refresher", celery_settings(chosen))
    app.refreshes_only = True
    _add(app, chosen, events)
    set_up_flower(chosen.broker_url)
    return app


def app_of_command_line() -> Celery:
    """Return the app of ``celery -A refresher``, where a wrong setting ends the command with one line.

    Raises:
        ConfigurationError: as for `make_app`, if no command line is being run.
        SystemExit: instead, if one is being run, because Celery would print a traceback.
    """
    import_from_working_directory()
    try:
        return make_app()
    except ConfigurationError as error:
        if click.get_current_context(silent=True) is None:
            raise
        raise SystemExit(f"error: {error}") from None


def install(app: Celery, settings: WorkerSettings | None = None, *, events: WorkerEvents | None = None) -> None:
    """Add the refresh task and its queues to an application's own Celery app; see `refresher.install`.

    Raises:
        ConfigurationError: a setting is wrong, or a module of REFRESHER_QUERIES can't be imported.
    """
    if not isinstance(app, Celery):
        raise ConfigurationError("app", f"<{type(app).__name__}>", "expected the application's Celery app")
    chosen = WorkerSettings.given_or_from_env(settings)
    connection_settings(chosen.broker_url)  # raises errors now instead of at the first retry
    translate_broker_urls(app)
    # The app's other tasks go to its default queue, which Celery declares only if there are no task queues.
    app.conf.task_queues = [
        *app.amqp.Queues(app.conf.task_queues).values(),
        *queues(chosen.namespace, chosen.broker_url),
    ]
    for cached in ("queues", "router"):
        vars(app.amqp).pop(cached, None)
    if not app.conf.value_set_for("worker_consumer"):
        app.conf.worker_consumer = CONSUMER
    _add(app, chosen, events)


def _add(app: Celery, settings: WorkerSettings, events: WorkerEvents | None) -> None:
    app.refresher_loop_heartbeat = Heartbeat()
    app.refresher_shutdown = shutdown = ShutdownFlag()
    # The main process queries over its own connections, which its children must not use.
    health = Health(settings, app.refresher_loop_heartbeat)

    metrics = MetricsServer(settings, GaugeCollector(lambda: health.ready().checks, _gauges(settings)))
    telemetry = Telemetry(settings, functools.partial(_gauges, settings))

    def build_events() -> WorkerEvents:
        found = [one for one in (events, telemetry.events, metrics.events) if one is not None]
        return CompositeWorkerEvents(*found) if found else WorkerEvents()

    monitors = Monitors(app, settings.namespace)
    slots = NodeSlots()

    def make_runtime() -> Runtime:
        broker = CeleryBroker(settings.broker_url, settings.namespace)
        return Runtime(settings, broker, events=build_events(), shuts_down=shutdown.is_set, slots=slots)

    runtimes = PerProcess(make_runtime)
    # For messages rejected in the main process. Made once the worker has started, when its metrics begin to count.
    app.refresher_events = functools.cache(build_events)
    add_task(app, runtimes, task_options(settings))
    import_queries(settings.query_modules)
    check_watched(registry)
    app.steps["worker"].add(LifecycleStep)
    app.steps["consumer"].add(HeartbeatStep)
    app.refresher_lifecycle = Lifecycle(
        app,
        settings,
        slots=slots,
        runtimes=runtimes,
        in_place=_in_place(app, settings, runtimes, monitors),
        monitors=monitors,
        metrics=metrics,
        telemetry=telemetry,
        health=HealthServer(settings, app.refresher_loop_heartbeat, health),
        periodic=_periodic(app, settings),
    )


def _in_place(app: Celery, settings: WorkerSettings, runtimes: PerProcess, monitors: Monitors) -> InPlace:
    misses = queue_for(settings.namespace, settings.broker_url, has_waiter=True)
    return InPlace(
        registry,
        lambda: runtimes.get().in_place,
        lambda item, pause_seconds: resend(app, misses, settings, [item], countdown=pause_seconds),
        monitors.show,
    )


def _periodic(app: Celery, settings: WorkerSettings) -> list[Periodic]:
    register = in_redis(settings.redis_url, lambda link: register_versions(link, settings, registry))
    return [
        Periodic("register the queries' versions", HEARTBEAT_SECONDS, register),
        Periodic("keep up the tags", UPKEEP_SECONDS, in_redis(settings.redis_url, TagUpkeep(settings))),
        *([feed(settings, lambda: events_of(app))] if settings.feed else ()),
    ]


def _gauges(settings: WorkerSettings) -> WorkerGauges:
    client = connect(settings.redis_url, timeout_seconds=SCRAPE_SECONDS)  # connects at the first scrape
    namespace, guards = settings.namespace, fork_gate.guards
    return WorkerGauges(
        guards(CeleryBroker(settings.broker_url, namespace).waiting),
        guards(DeadLetters(client, namespace).newest),
        guards(lambda: _shares(client, settings)),
        guards(lambda: client.zcard(pending_tags_key(namespace))),
        guards(lambda: _oldest_change(client, namespace)),
        registry,
    )


def _shares(client: redis.Redis, settings: WorkerSettings) -> dict[str, int]:
    budgets = {ALL: settings.budget} | {query.name: query.budget for query in registry}
    bounded = [query for query, budget in budgets.items() if budget.is_bounded]
    return loads_in_progress(client, settings.namespace, bounded)


def _oldest_change(client: redis.Redis, namespace: str) -> float | None:
    state = read_state(client, namespace)
    return None if state is None else state.oldest


def task_options(settings: WorkerSettings) -> dict[str, Any]:
    """Return the options of the refresh task, with the reason for each."""
    return {
        # Ends the runs of a lost process.
        "Request": "refresher.worker.celery_fixes.lost_runs:RefreshRequest",
        # Otherwise Celery would share the task with every other app of the process.
        "shared": False,
        # A message is done when its refresh is, and a killed pool process returns it. Redelivery is harmless, since
        # acquire tells an old message from a new one.
        "acks_late": True,
        "reject_on_worker_lost": True,
        # Nobody reads results, since the outcome of a refresh is in the entry. Result keys would only pile up.
        "ignore_result": True,
        "store_errors_even_if_ignored": False,
        "serializer": "json",
        "soft_time_limit": settings.soft_limit_seconds,
        "time_limit": settings.hard_limit_seconds,
        # Flower depends on them.
        "send_events": True,
    }


def celery_settings(settings: WorkerSettings) -> dict[str, Any]:
    """Return the settings of a Celery app that only refreshes, with the reason for each."""
    return {
        **consumer_settings(
            settings.namespace, settings.broker_url, visibility_timeout_seconds=settings.visibility_timeout_seconds
        ),
        # As `task_options` sets it for the task.
        "result_backend": None,
        "task_ignore_result": True,
        "task_store_errors_even_if_ignored": False,
        "worker_consumer": CONSUMER,
        "worker_concurrency": settings.workers,
        "task_soft_time_limit": settings.soft_limit_seconds,
        "task_time_limit": settings.hard_limit_seconds,
        "worker_max_tasks_per_child": 10_000,
        # Flower depends on these, but not on task-sent, which would show a retry under the name refresher.refresh.
        "worker_send_task_events": True,
    }
