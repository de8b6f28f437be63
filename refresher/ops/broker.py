"""What waits in the broker, and which workers answer. Each step is bounded in time, on a silent broker too."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from api_client.config.broker import miss_queue, queues, refresh_queue
from api_client.config.settings import SharedSettings
from api_client.trigger.broker import CeleryBroker, display_name, queue_length

TIMEOUT_SECONDS: Final = 0.5
LINK_SECONDS: Final = 2.0
"""More than the second for which kombu's Redis transport listens to a queue at a time."""
ANSWER_SECONDS: Final = 1.0
"""How long workers have to answer: nobody knows how many there are."""


@dataclass(frozen=True, slots=True)
class Queues:
    """How many refreshes wait: of early and stale values, and of misses, for which somebody waits."""

    refresh: int
    miss: int


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    """A worker that answered. ``taken`` are the refreshes that it began since its start, by query; ``uptime`` in s."""

    name: str
    pool: str
    processes: int
    taken: dict[str, int]
    uptime: int


def queues_of(settings: SharedSettings) -> Queues:
    """Ask how many refreshes wait; raises what the broker raises."""
    url, namespace = settings.broker_url, settings.namespace
    with (
        closing(CeleryBroker(url, namespace)) as broker,
        broker.app.pool.acquire(block=True, timeout=TIMEOUT_SECONDS) as connection,
    ):
        return Queues(
            refresh=queue_length(connection, refresh_queue(namespace, url)),
            miss=queue_length(connection, miss_queue(namespace, url)),
        )


def workers_of(settings: SharedSettings) -> list[WorkerSeen]:
    """Ask workers for a sign of life: those that take refreshes of this namespace; raises what the broker raises."""
    from api_client.trigger.private_app import (
        PublishingApp,  # here: it imports Celery, for which no other command has time
    )

    app = PublishingApp.to(settings.broker_url, LINK_SECONDS)
    wanted = {queue.name for queue in queues(settings.namespace, settings.broker_url)}
    try:
        consumed = app.control.inspect(timeout=ANSWER_SECONDS).active_queues() or {}
        ours = sorted(name for name, some in consumed.items() if wanted & {queue["name"] for queue in some})
        # The second question has an end: it is known who has to answer.
        known = app.control.inspect(destination=ours, timeout=ANSWER_SECONDS, limit=len(ours))
        stats = (known.stats() or {}) if ours else {}
    finally:
        app.close()
    return [_worker(name, stats.get(name, {})) for name in ours]


def _worker(name: str, stats: dict[str, Any]) -> WorkerSeen:
    pool = stats.get("pool", {})
    return WorkerSeen(
        name=name,
        pool=_pool_name(str(pool.get("implementation", ""))),
        processes=int(pool.get("max-concurrency", 0)),
        taken=_by_query(stats.get("total", {})),
        uptime=int(stats.get("uptime", 0)),
    )


def _by_query(total: Mapping[str, int]) -> dict[str, int]:
    """Return Celery's counts of a worker's tasks, which go by the names that monitors show, as counts of refreshes."""
    begins = display_name("")
    return {name.removeprefix(begins): count for name, count in total.items() if name.startswith(begins)}


def _pool_name(implementation: str) -> str:
    """Return a pool's name as ``-P`` takes it, of ``celery.concurrency.prefork:TaskPool``."""
    name = implementation.partition(":")[0].rpartition(".")[2]
    return "threads" if name == "thread" else name
