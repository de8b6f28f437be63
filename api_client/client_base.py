"""What the sync and the async client have in common: settings, parts, and coming up anew after a fork."""

from __future__ import annotations

import os
import uuid
import weakref
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Self

from api_client import lease
from api_client.answers import Invalidation, RefreshState
from api_client.asked import AskedRecently
from api_client.batches import AnyCall, Batch
from api_client.broker import Broker, CeleryBroker
from api_client.clock import monotonic_seconds
from api_client.decisions import Decisions
from api_client.durations import Duration
from api_client.errors import ConfigurationError, InvalidQuery, TriggerFailed
from api_client.events import ReaderEvents, RefreshReason, guarded, together
from api_client.explain import Explanation, explanation
from api_client.floors import ReadOptions, bookmarks_of, duration_of, flag_of, floor_of
from api_client.judging import PLAIN, Floor
from api_client.keys import CacheKey, make_key
from api_client.lease import Call, ClaimReply, ClaimStatus
from api_client.lease_store import read_scripts
from api_client.live_versions import KnownVersions, VersionedInvalidation, read_versions
from api_client.local_tier import LocalTier
from api_client.notifications import Notifications
from api_client.open_link import open_link
from api_client.params import Params
from api_client.publisher import Publisher, Trigger
from api_client.read_core import ReadCore
from api_client.redis_edge import connect_to_any
from api_client.sentinels import KnownMaster
from api_client.settings import ReaderSettings
from api_client.tracking import TrackingLink

PUBLISH_BOUND_SECONDS: Final = 3.0
MOST_REPLICAS: Final = 1_000


class ClientBase:
    """The parts of a reader, made again in a forked child; and what its calls ask for. No I/O of its own.

    Args:
        settings: default: read from the environment.
        events: who counts what happens; default: nobody. With CACHE_METRICS a registry too, with CACHE_OTEL
            OpenTelemetry.

    Raises:
        ConfigurationError: a setting is wrong.
    """

    def __init__(self, settings: ReaderSettings | None = None, *, events: ReaderEvents | None = None) -> None:
        self.settings: ReaderSettings = settings or ReaderSettings.from_env()
        self._events = guarded(_counted(events, self.settings), ReaderEvents)
        self._namespace = self.settings.namespace
        self._default_timeout_seconds = self.settings.wait_timeout_ms / 1000
        self._set_up()
        _clients.add(self)

    @classmethod
    def from_env(cls, *, events: ReaderEvents | None = None) -> Self:
        """Make a client from the environment.

        Raises:
            ConfigurationError: the first variable that is wrong.
        """
        return cls(ReaderSettings.from_env(), events=events)

    def key(self, query: str, params: Params | None = None, *, version: int = 1) -> CacheKey:
        """Return the key of (query, params, version): what the cache calls its entry and its lease record."""
        return make_key(self.settings.namespace, query, params, version)

    def _set_up(self) -> None:
        read_scripts()
        settings = self.settings
        url, timeout_seconds = settings.redis_url, settings.redis_timeout_seconds
        self._link = open_link(url, timeout_seconds, settings.redis_reply_timeout_seconds)
        master = self._link.health.master
        self._notifications = Notifications(connect_to_any(url, timeout_seconds=timeout_seconds, known=master))
        master.when_moved(self._notifications.leave)
        self._asked = asked = AskedRecently(monotonic=monotonic_seconds)
        self._decisions = Decisions()
        self._publisher = Publisher(
            settings, self._link.store, self._make_broker(), asked, self._events,
            monotonic=monotonic_seconds, decisions=self._decisions,
        )  # fmt: skip
        self._tier, self._tracking = _local_tier(settings, master)
        self._core = ReadCore(
            settings, self._link.health, self._publisher, asked, self._decisions, self._events,
            self._tier, self._tracking,
        )  # fmt: skip
        self._known_versions = KnownVersions()
        self._set_up_reads()

    def _set_up_reads(self) -> None:
        """Make the parts that differ."""
        raise NotImplementedError

    def _make_broker(self) -> Broker:
        """Return the way to the workers; `refresher.testing` puts its own here."""
        return CeleryBroker(self.settings.broker_url, self.settings.namespace)

    def _wanted(self, query: str, options: ReadOptions) -> tuple[Floor, float]:
        """Return what a call asks of an entry, and for how many seconds it waits for one."""
        if not options:
            return PLAIN, self._default_timeout_seconds
        return floor_of(query, options), self._timeout_seconds(query, options.get("timeout"))

    def _timeout_seconds(self, query: str, timeout: Duration | None) -> float:
        return self._default_timeout_seconds if timeout is None else duration_of(query, "timeout", timeout)

    @contextmanager
    def _invalidation(
        self, key: CacheKey, *, all_versions: bool, hard: bool, bookmarks: Collection[str], replicas: int
    ) -> Iterator[VersionedInvalidation]:
        """Check the arguments of an invalidation; at its end this process forgets what it has of its keys."""
        is_hard = flag_of(key.query, "hard", hard)
        if isinstance(replicas, bool) or not isinstance(replicas, int) or not 0 <= replicas <= MOST_REPLICAS:
            raise InvalidQuery(
                f"replicas={replicas!r:.40} of {key.query!r}: allowed is a whole number, 0 to {MOST_REPLICAS}",
                query=key.query,
            )
        checked = bookmarks_of(key.query, bookmarks)
        retention_seconds = self.settings.record_retention_seconds

        def invalidate(one: CacheKey) -> Call[int]:
            return lease.invalidate(one, hard=is_hard, bookmarks=checked, retention_seconds=retention_seconds)

        known = self._known_versions if all_versions else None
        invalidation = VersionedInvalidation(key, self._namespace, invalidate, known)
        try:
            yield invalidation
        finally:
            for one in invalidation.keys:
                self._core.forget(one)  # also when the reply was lost: it may have been done

    def _invalidate_on_replicas(
        self, key: CacheKey, invalidation: VersionedInvalidation, replicas: int, *, all_versions: bool
    ) -> Invalidation:
        """Invalidate one version after the other, and wait for the replicas of each."""
        query, half = key.query, self.settings.redis_timeout_seconds / 2
        registered = self._link.run(read_versions(self._namespace, query), query) if all_versions else frozenset()
        replies = {
            version: self._link.run_and_wait(invalidation.call(version), query, replicas=replicas, timeout_seconds=half)
            for version in sorted({key.version, *registered})
        }
        generations = {version: generation for version, (generation, _) in replies.items()}
        confirmed = min(count for _, count in replies.values())
        return Invalidation(generations[key.version], confirmed >= replicas, generations)

    def _batch(self, calls: Iterable[AnyCall], options: ReadOptions) -> Batch:
        floor, timeout_seconds = self._wanted("get_many", options)

        def floor_of_version(version: int) -> Floor:
            has_numbers_by_version = not isinstance(options.get("min_generation", 0), int)
            return floor_of("get_many", {**options, "version": version}) if has_numbers_by_version else floor

        return Batch(
            self._core, self.settings.namespace, calls, floor_of_version, timeout_seconds, options.get("version", 1)
        )

    def _explanation(self, key: CacheKey, replies: Sequence[object]) -> Explanation:
        return explanation(
            key,
            replies,
            decision=self._decisions.last(key.entry),
            outcome=self._decisions.outcome(key.entry),
            silent_seconds=self._asked.left_seconds(key.entry),
            queue_length=self._publisher.known_queue_length,
        )

    def _forced_claim(self, key: CacheKey, claim_id: str) -> Call[ClaimReply]:
        return lease.claim(
            key, claim_id=claim_id, seen_token=None, force=True,
            queue_ttl_seconds=self.settings.queue_ttl_seconds,
            retention_seconds=self.settings.record_retention_seconds,
        )  # fmt: skip

    def _close_parts(self) -> None:
        self._publisher.close()
        self._notifications.close()
        if self._tracking is not None:
            self._tracking.close()
        self._link.close()


def new_claim_id() -> str:
    """Return an id that no other claim has."""
    return uuid.uuid4().hex


def manual_trigger(key: CacheKey, reply: ClaimReply, claim_id: str, *, someone_waits: bool) -> Trigger | None:
    """Return what is to be published for a forced claim; None where it was refused."""
    if reply.status is not ClaimStatus.CLAIMED:
        return None
    return Trigger(key, RefreshReason.MANUAL, claim_number=reply.number, claim_id=claim_id, someone_waits=someone_waits)


def not_published(trigger: Trigger, error: Exception) -> TriggerFailed:
    """Return the error for a refresh that could not be published."""
    query = trigger.key.query
    why = str(error) or f"nothing came of it within {PUBLISH_BOUND_SECONDS:g} s"  # a TimeoutError says nothing
    return TriggerFailed(f"the refresh of {query!r} could not be published: {why}", query=query)


def state_of(reply: ClaimReply) -> RefreshState:
    """Return what a forced claim came to."""
    return RefreshState.TRIGGERED if reply.status is ClaimStatus.CLAIMED else RefreshState.SUPPRESSED


def _local_tier(settings: ReaderSettings, known: KnownMaster) -> tuple[LocalTier | None, TrackingLink | None]:
    if not settings.local_max_entries:
        return None, None
    tier = LocalTier(
        max_entries=settings.local_max_entries,
        max_bytes=settings.local_max_bytes,
        max_age_seconds=settings.local_max_age_seconds,
    )
    return tier, TrackingLink(
        settings.redis_url,
        timeout_seconds=settings.redis_timeout_seconds,
        tier=tier,
        namespace=settings.namespace,
        known=known,
    )


def _counted(events: ReaderEvents | None, settings: ReaderSettings) -> ReaderEvents:
    told = [] if events is None else [events]
    if settings.metrics:
        with _needing("CACHE_METRICS", "prometheus_client", extra="metrics"):
            from api_client.metrics import default_events

            told.append(default_events())
    if settings.otel:
        with _needing("CACHE_OTEL", "opentelemetry-api", extra="otel"):
            from api_client.otel import default_events as telling_otel

            told.append(telling_otel())
    return together(told, ReaderEvents)


@contextmanager
def _needing(variable: str, package: str, *, extra: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        allowed = f"it needs {package} (pip install 'refresher[{extra}]'); allowed without it is false"
        raise ConfigurationError(variable, "true", allowed) from error


_clients: weakref.WeakSet[ClientBase] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    # Threads, locks and connections of the parent are of no use in the child.
    for client in list(_clients):
        client._set_up()  # noqa: SLF001 - this module's own class


os.register_at_fork(after_in_child=_after_fork_in_child)
