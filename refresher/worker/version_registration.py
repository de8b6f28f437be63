"""Registration of the versions that a worker loads, so that an invalidation reaches every version of a key.

A refresh registers its query's version before it acquires the key. A heartbeat of the worker's main process registers
all of its queries again, since Redis may lose registrations (flush, eviction, failover).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from api_client.errors import CacheUnavailable
from api_client.protocol.lease import Call
from api_client.protocol.live_versions import loader_of, register, register_loader
from api_client.transport.scripts import LeaseStepRunner, at_once
from refresher.queries import Query, Registry
from refresher.settings import WorkerSettings
from refresher.worker.redis_link import RetryingLink

HEARTBEAT_SECONDS: Final = 10.0
# For this long after the last worker that loads a version, readers go on sending it in batches, and other workers pass
# its messages on.
LOADER_SECONDS: Final = 60.0
# A process goes on for this long without being able to register again, for example while a cluster's node is down.
MARGIN_SECONDS: Final = 600.0
# The pause between its tries, each of which holds a load up for a timeout, whether its own node is up or not.
RETRY_SECONDS: Final = 60.0


def registration_of(query: Query, settings: WorkerSettings) -> Call[int]:
    """Return the call that registers a version for as long as entries of a load that begins soon can exist."""
    longest_run_seconds = settings.hard_limit_seconds + settings.record_retention_seconds
    lives_seconds = query.ttl_seconds + query.grace_seconds + longest_run_seconds + MARGIN_SECONDS
    return register(settings.namespace, query.name, query.version, lives_seconds=lives_seconds)


def registrations_of(queries: Iterable[Query], settings: WorkerSettings) -> list[Call[int]]:
    """Return the calls of a heartbeat: all versions, with this worker's loaders."""
    return [
        call
        for query in queries
        for call in (
            registration_of(query, settings),
            register_loader(
                settings.namespace, query.name, loader_of(query.version, query.takes), lives_seconds=LOADER_SECONDS
            ),
        )
    ]


class VersionRegistration:
    """Registers a query's version before this process loads it, and again every `HEARTBEAT_SECONDS`. Thread-safe.

    Args:
        records: runs the call.
        settings: the worker's settings, for namespace and limits.
        monotonic: the clock, in seconds.
    """

    def __init__(self, records: LeaseStepRunner, settings: WorkerSettings, monotonic: Callable[[], float]) -> None:
        self._records, self._settings, self._monotonic = records, settings, monotonic
        self._registered_at: dict[tuple[str, int], float] = {}
        self._next_at: dict[tuple[str, int], float] = {}

    def ensure(self, query: Query) -> None:
        """Ensure that the version is registered for as long as a load that begins now can store entries.

        Raises:
            CacheUnavailable: it could not be registered for longer than the registration's margin.
        """
        name, now = (query.name, query.version), self._monotonic()
        registered_at = self._registered_at.get(name)
        if registered_at is not None and now < self._next_at.get(name, now):
            return
        margin_seconds = 0.0 if registered_at is None else registered_at + MARGIN_SECONDS - now
        # Without patience if a failure is tolerated, since the key's own node may be up.
        until = at_once if margin_seconds > 0 else all
        (reply,) = self._records.run_each([registration_of(query, self._settings)], until=until)
        pause_seconds = HEARTBEAT_SECONDS
        if not isinstance(reply, CacheUnavailable):
            self._registered_at[name] = now
        elif margin_seconds <= 0:
            raise reply
        else:
            pause_seconds = min(RETRY_SECONDS, margin_seconds)
        self._next_at[name] = self._monotonic() + pause_seconds


def register_versions(link: RetryingLink, settings: WorkerSettings, queries: Registry) -> None:
    """Register all versions of a worker's queries; its main process does so every `HEARTBEAT_SECONDS`.

    Raises:
        CacheUnavailable: Redis could not be reached, or refused.
    """
    if calls := registrations_of(queries, settings):
        link.store.run_all(calls)
