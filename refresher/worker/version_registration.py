"""Registration of the versions that a worker loads, so that an invalidation reaches every version of a key.

A refresh registers its query's version before it acquires the key. A heartbeat of the worker's main process registers
all of its queries again, since Redis may lose registrations: emptied, evicted, or failed over.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Final

from api_client.errors import CacheUnavailable
from api_client.protocol.lease import Call
from api_client.protocol.live_versions import register, register_batched
from api_client.transport.scripts import LeaseStepRunner
from refresher.queries import Query, Registry
from refresher.settings import WorkerSettings
from refresher.worker.redis_link import RetryingLink

log: Final = logging.getLogger(__name__)

HEARTBEAT_SECONDS: Final = 10.0
# Readers go on sending batches for this time after the last worker that takes them.
BATCHED_SECONDS: Final = 60.0
# A process goes on for this time while it can't register again, on a cluster one of whose nodes is down for example.
MARGIN_SECONDS: Final = 600.0


def registration_of(query: Query, settings: WorkerSettings) -> Call[int]:
    """Return the call that registers a version until no entry of a load that begins soon can be left."""
    longest_run_seconds = settings.hard_limit_seconds + settings.record_retention_seconds
    lives_seconds = query.ttl_seconds + query.grace_seconds + longest_run_seconds + MARGIN_SECONDS
    return register(settings.namespace, query.name, query.version, lives_seconds=lives_seconds)


def registrations_of(queries: Iterable[Query], settings: WorkerSettings) -> list[Call[int]]:
    """Return the calls of a heartbeat: all versions, and those that are loaded in batches."""
    batched = [query for query in queries if query.batch is not None]
    return [
        *(registration_of(query, settings) for query in queries),
        *(
            register_batched(settings.namespace, query.name, query.version, lives_seconds=BATCHED_SECONDS)
            for query in batched
        ),
    ]


class VersionRegistration:
    """Registers a query's version before this process loads it, and again after each `HEARTBEAT_SECONDS`. Thread-safe.

    Args:
        records: runs the call.
        settings: namespace and limits.
        monotonic: seconds.
    """

    def __init__(self, records: LeaseStepRunner, settings: WorkerSettings, monotonic: Callable[[], float]) -> None:
        self._records, self._settings, self._monotonic = records, settings, monotonic
        self._registered_at: dict[tuple[str, int], float] = {}
        self._next_at: dict[tuple[str, int], float] = {}

    def ensure(self, query: Query) -> None:
        """Return once the version is registered for all that a load which begins now can store.

        Raises:
            CacheUnavailable: it could not be registered, for longer than the registration's margin.
        """
        name, now = (query.name, query.version), self._monotonic()
        registered_at = self._registered_at.get(name)
        if registered_at is not None and now < self._next_at.get(name, now):
            return
        try:
            self._records.run(registration_of(query, self._settings))
        except CacheUnavailable:
            if registered_at is None or now - registered_at > MARGIN_SECONDS:
                raise
        else:
            self._registered_at[name] = now
        self._next_at[name] = now + HEARTBEAT_SECONDS


class VersionHeartbeat:
    """Registers all versions of a worker's queries every `HEARTBEAT_SECONDS`, on a thread of its main process."""

    def __init__(self, settings: WorkerSettings, queries: Registry) -> None:
        self._settings, self._queries = settings, queries
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin, once the worker has forked its pool."""
        self._stopped.clear()
        threading.Thread(target=self._run, name="version-heartbeat", daemon=True).start()

    def stop(self) -> None:
        """End; what is registered remains for as long as its entries can live."""
        self._stopped.set()

    def beat(self) -> None:
        """Register all of them now.

        Raises:
            CacheUnavailable: Redis could not be reached, or refused.
        """
        calls = registrations_of(self._queries, self._settings)
        # Connections of its own, each time: a process of the pool that is forked meanwhile must not use them.
        with closing(RetryingLink(self._settings.redis_url)) as link:
            if calls:
                link.store.run_all(calls)

    def _run(self) -> None:
        has_failed = False
        while not self._stopped.is_set():
            try:
                self.beat()
                has_failed = False
            except CacheUnavailable as error:
                if not has_failed:
                    log.warning("could not register the queries' versions (%s); retrying", error)
                has_failed = True
            self._stopped.wait(HEARTBEAT_SECONDS)
