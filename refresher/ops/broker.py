"""Queue lengths, workers that reply, keys that kombu did not make. Each step is bounded, even on a silent broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import redis
from kombu.transport.redis import Channel

from api_client.config.broker import miss_queue, queues, refresh_queue
from api_client.config.environment import without_password
from api_client.config.settings import SharedSettings
from api_client.trigger.broker import CeleryBroker, display_name, queue_length

TIMEOUT_SECONDS: Final = 0.5
LINK_SECONDS: Final = 2.0
"""Longer than the second for which kombu's Redis transport listens to a queue at a time."""
ANSWER_SECONDS: Final = 1.0
"""Time for workers to reply, whose number is unknown."""
_REMOTE_CONTROL: Final = ("celery.pidbox", "reply.celery.pidbox")


@dataclass(frozen=True, slots=True)
class Queues:
    """Numbers of queued refreshes: background (early and stale) and blocking (misses)."""

    refresh: int
    miss: int


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    """A worker that replied. ``taken`` counts the refreshes that it has begun, by query; ``uptime`` is in seconds."""

    name: str
    pool: str
    processes: int
    taken: dict[str, int]
    uptime: int


def broker_place(settings: SharedSettings) -> str:
    """Return the broker's variable, and its URL without a password."""
    return f"{settings.variable_of('broker_url')}={without_password(settings.broker_url)}"


def queue_lengths(settings: SharedSettings) -> Queues:
    """Count the queued refreshes; the broker's errors pass through."""
    url, namespace = settings.broker_url, settings.namespace
    with (
        closing(CeleryBroker(url, namespace)) as broker,
        broker.app.pool.acquire(block=True, timeout=TIMEOUT_SECONDS) as connection,
    ):
        return Queues(
            refresh=queue_length(connection, refresh_queue(namespace, url)),
            miss=queue_length(connection, miss_queue(namespace, url)),
        )


def consumed_queues(app: Any, answer_seconds: float) -> list[tuple[str, set[str]]]:
    """Return the name and queues of each worker that replies; the broker's errors pass through.

    Two workers, even of two namespaces, may have the same name; Celery's own ``inspect`` would show one at random.
    """
    replies = _replies(app, "active_queues", timeout=answer_seconds)
    return [(name, {queue["name"] for queue in consumed}) for name, consumed in replies]


def _replies(app: Any, command: str, **options: Any) -> list[tuple[str, Any]]:
    replies = app.control.broadcast(command, reply=True, **options) or []
    return [one for reply in replies for one in reply.items()]


def running_workers(settings: SharedSettings) -> list[WorkerSeen]:
    """Return the workers that consume a queue of this namespace; the broker's errors pass through."""
    # Imported here, since importing Celery takes too long for other commands.
    from api_client.trigger.private_app import PublishingApp

    wanted = {queue.name for queue in queues(settings.namespace, settings.broker_url)}
    with closing(PublishingApp.to(settings.broker_url, LINK_SECONDS)) as app:
        ours = sorted({name for name, names in consumed_queues(app, ANSWER_SECONDS) if wanted & names})
        # This request can end early, since it is known who has to reply.
        options = {"destination": ours, "timeout": ANSWER_SECONDS, "limit": len(ours)}
        stats = dict(_replies(app, "stats", **options)) if ours else {}
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
    """Return Celery's counts of a worker's tasks by query, instead of by the names that monitors show."""
    begins = display_name("")
    return {name.removeprefix(begins): count for name, count in total.items() if name.startswith(begins)}


def _pool_name(implementation: str) -> str:
    """Return a pool's name for ``-P``, given ``celery.concurrency.prefork:TaskPool``, say."""
    name = implementation.partition(":")[0].rpartition(".")[2]
    return "threads" if name == "thread" else name


class ReplacedKey(NamedTuple):
    """A key of the broker with a different type than kombu gives it."""

    name: str
    actual: str
    expected: str

    @property
    def fault(self) -> str:
        """The key's wrong type, as text."""
        return f"the broker's key {self.name!r} has type {self.actual}, expected {self.expected}"

    @property
    def remedy(self) -> str:
        """The operator's remedy, as text."""
        return f"DEL {self.name} on the broker (workers recreate it), and keep other applications off its database"


def replaced_keys(client: redis.Redis, queues: Iterable[str]) -> list[ReplacedKey]:
    """Return the broker's keys with wrong types.

    Args:
        client: a client of the broker's database.
        queues: the names of the queues that workers consume.

    Raises:
        redis.exceptions.RedisError: the broker can't be queried, perhaps because the user lacks permission for TYPE.
    """
    expected = _expected_types(queues)
    with client.pipeline(transaction=False) as pipeline:
        for name in expected:
            pipeline.type(name)
        types = [reply.decode() if isinstance(reply, bytes) else str(reply) for reply in pipeline.execute()]
    found = zip(expected.items(), types, strict=True)
    return [ReplacedKey(name, actual, right) for (name, right), actual in found if actual not in {right, "none"}]


def _expected_types(queues: Iterable[str]) -> dict[str, str]:
    names = list(queues)
    by_priority = [f"{name}{Channel.sep}{step}" for name in names for step in Channel.priority_steps if step]
    exchanges = [*names, *_REMOTE_CONTROL]
    return {
        **dict.fromkeys([*names, *by_priority], "list"),
        Channel.unacked_key: "hash",
        Channel.unacked_index_key: "zset",
        Channel.unacked_mutex_key: "string",
        **{Channel.keyprefix_queue % name: "set" for name in exchanges},
        **{Channel.keyprefix_binding_permanent % name: "set" for name in exchanges},
        Channel.keyprefix_binding_deadlines: "zset",
    }
