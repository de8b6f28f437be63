"""The consumer, which takes changes, invalidates their tags and acknowledges them; a lease allows one at a time.

::

    take ──▶ invalidate their tags, with the bookmark ──▶ acknowledge
      └───────────── ends anywhere: they are taken again ────────────┘

The lease spares the graph the work of several consumers; correctness does not depend on it. A repeated invalidation is
harmless, and a consumer acknowledges only what it has invalidated itself, so one that was paused and overtaken does no
harm either.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

from api_client.protocol import lease
from api_client.protocol.keys import CacheKey, make_key
from api_client.protocol.lease import AcquireStatus, process_identity
from api_client.protocol.tags import MAX_TAGS, TagWalk
from api_client.transport.link import CacheLink
from api_client.transport.scripts import LeaseStepRunner, all_answered, drive
from refresher.feed.changes import Changes, ChangeSource
from refresher.feed.state import PUBLISH_SECONDS, FeedState, publishing
from refresher.settings import WorkerSettings

log: Final = logging.getLogger(__name__)

LEASE_KEY: Final = "refresher.feed"
LEASE_SECONDS: Final = 3.0
LEASE_LIMIT_SECONDS: Final = 3_600.0
IDLE_SECONDS: Final = 0.05
WAITING_SECONDS: Final = 1.0
"""Pause between two attempts to take the lease that another consumer holds."""
WINDOW: Final = 1_000
"""Number of last transactions whose staleness is published."""


class Lease:
    """The lease of the namespace's consumer, with the record and steps of an entry's, but without an entry."""

    def __init__(self, steps: LeaseStepRunner, settings: WorkerSettings, monotonic: Callable[[], float]) -> None:
        self._steps, self._settings, self._monotonic = steps, settings, monotonic
        self._key = make_key(settings.namespace, LEASE_KEY, None, 1)
        self._nonce, self._token, self._renew_at = b"", 0, 0.0

    def is_held(self) -> bool:
        """Take the lease, or renew it after a third of its time; return False if another consumer holds it.

        Raises:
            CacheUnavailable: Redis did not answer.
        """
        if self._token and self._monotonic() < self._renew_at:
            return True
        if self._token and self._steps.run(
            lease.renew(self._key, token=self._token, nonce=self._nonce, lease_seconds=LEASE_SECONDS)
        ):
            self._renew_at = self._monotonic() + LEASE_SECONDS / 3
            return True
        self._nonce = secrets.token_bytes(8)
        reply = self._steps.run(
            lease.acquire(
                self._key,
                nonce=self._nonce,
                claim_number=0,
                ticket="",
                lease_seconds=LEASE_SECONDS,
                limit_seconds=LEASE_LIMIT_SECONDS,
                retention_seconds=self._settings.record_retention_seconds,
            )
        )
        self._token = reply.token if reply.status is AcquireStatus.ACQUIRED else 0
        self._renew_at = self._monotonic() + LEASE_SECONDS / 3
        return bool(self._token)

    def give_up(self) -> None:
        """Release the lease for another consumer; may be repeated.

        Raises:
            CacheUnavailable: Redis did not answer; the lease expires by itself.
        """
        token, self._token = self._token, 0
        if token:
            retention_seconds = self._settings.record_retention_seconds
            self._steps.run(
                lease.hand_back(
                    self._key, token=token, nonce=self._nonce, queue_ttl_seconds=0, retention_seconds=retention_seconds
                )
            )


@dataclass(frozen=True, slots=True)
class Invalidated:
    """Changes whose tags have been invalidated.

    ``by_query`` counts the entries invalidated; ``staleness_seconds`` has the time since the commit of each
    transaction.
    """

    changes: Changes
    by_query: Counter[str]
    staleness_seconds: tuple[float, ...]


class Consumer:
    """Carries changes from a source to the cache until it is stopped.

    Args:
        source: the source of changes.
        store: runs steps on the cache, repeating each for some seconds.
        settings: the namespace's settings.
        watched: the watched labels and relationship types.
        on_invalidated: called before the changes are acknowledged.
        at_work: the context of each step, in which a worker forks no process.
    """

    def __init__(
        self,
        source: ChangeSource,
        store: CacheLink,
        settings: WorkerSettings,
        *,
        watched: Sequence[str] = (),
        on_invalidated: Callable[[Invalidated], object] = lambda _: None,
        at_work: Callable[[], AbstractContextManager[object]] = nullcontext,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source, self._store, self._settings, self._watched = source, store, settings, tuple(watched)
        self._on_invalidated, self._at_work = on_invalidated, at_work
        self._monotonic, self._lease = monotonic, Lease(store, settings, monotonic)
        self._recent_seconds: deque[float] = deque(maxlen=WINDOW)
        self._publish_at = 0.0

    def run(self, stopped: threading.Event) -> None:
        """Consume until ``stopped`` is set; a failure is logged once, and the step tried again.

        Raises nothing, since any trouble with graph or cache may be over the next time.
        """
        failed: type[Exception] | None = None
        while not stopped.is_set():
            try:
                with self._at_work():
                    pause_seconds = self.step()
                if failed is not None:
                    log.info("the feed goes on")
                failed = None
            except Exception as error:  # noqa: BLE001 - whatever it is, it may have passed the next time
                if failed is not type(error):
                    log.warning("the feed could not go on (%s: %s); retrying", type(error).__name__, error)
                failed, pause_seconds = type(error), WAITING_SECONDS
            stopped.wait(pause_seconds)

    def step(self) -> float:
        """Take the present changes and handle them; return the pause before the next step, in seconds.

        Raises:
            CacheUnavailable, neo4j's errors: the step failed; the changes are taken again.
        """
        if not self._lease.is_held():
            return WAITING_SECONDS
        changes = self._source.take()
        if changes.positions:
            self._carry(changes)
        # Changes left in the source are about as old as those taken.
        self._publish(changes.left, 0.0 if changes.left == 0 else max(changes.ages_seconds, default=0.0))
        return 0.0 if changes.positions else IDLE_SECONDS

    def close(self) -> None:
        """Give up the lease."""
        try:
            self._lease.give_up()
        except Exception as error:  # noqa: BLE001 - it runs out
            log.info("the feed's lease runs out by itself: %s", error)

    def _carry(self, changes: Changes) -> None:
        if changes.bulk:
            log.warning(
                "%d transactions changed too much to be named: all that depends on their labels and types is stale",
                changes.bulk,
            )
        taken_at = self._monotonic()
        by_query = self._invalidate(changes, taken_at)
        taken_seconds = self._monotonic() - taken_at
        staleness_seconds = tuple(age_seconds + taken_seconds for age_seconds in changes.ages_seconds)
        self._recent_seconds.extend(staleness_seconds)
        self._on_invalidated(Invalidated(changes, by_query, staleness_seconds))
        self._source.acknowledge(changes)

    def _publish(self, waiting: int | None, oldest_seconds: float) -> None:
        """Publish the feed's state, at most once a second."""
        now = self._monotonic()
        if now < self._publish_at:
            return
        self._publish_at = now + PUBLISH_SECONDS
        recent = sorted(self._recent_seconds)
        p50, p99 = (recent[int(len(recent) * share)] if recent else None for share in (0.5, 0.99))
        state = FeedState(process_identity(), waiting, oldest_seconds, p50, p99, self._watched)
        self._store.execute_all([publishing(self._settings.namespace, state)])

    def _invalidate(self, changes: Changes, taken_at: float) -> Counter[str]:
        settings = self._settings
        by_query: Counter[str] = Counter()

        def count(key: CacheKey) -> None:
            by_query[key.query] += 1

        def run_each(calls: Sequence[lease.Call[Any]]) -> Sequence[Any]:
            # A change with many dependent entries takes longer than the lease; even without the lease the rest is done.
            taken_seconds = self._monotonic() - taken_at
            if self._lease.is_held() and taken_seconds > PUBLISH_SECONDS:
                waiting = None if changes.left is None else changes.left + len(changes.positions)
                self._publish(waiting, max(changes.ages_seconds, default=0.0) + taken_seconds)
            return self._store.run_each(calls)

        for start in range(0, len(changes.tags), MAX_TAGS):
            walk = TagWalk(settings.namespace, retention_seconds=settings.record_retention_seconds, touched=count)
            rounds = walk.invalidate(changes.tags[start : start + MAX_TAGS], bookmarks=changes.bookmarks)
            drive(all_answered(rounds), run_each)
        return by_query
