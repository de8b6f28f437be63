"""Metrics of a worker: their table, the events that feed them, and the gauges that are looked up at each export.

``xfetch_lock_contention`` is in the readers' table too: there it counts refused claims, here messages that found
another run of their key.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from api_client.observe.metrics import Backend, Kind, Metered, Metric, by_name, counting
from refresher.flow.dead_letters import DeadLetter, letters_by_query
from refresher.flow.ports import DropReason, WorkerEvents
from refresher.queries import Registry

log: Final = logging.getLogger(__name__)

SECONDS_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 150, 300)
HELD: Final = frozenset({"running", "retrying"})
"""States of a lease record in which another run holds the key."""
COMPLETED: Final = "xfetch_refresh_completed"
DROPPED: Final = "refresher_messages_dropped"


def _duration(name: str, help_: str, event: str, amount: str, *labels: str) -> Metric:
    return Metric(
        name, help_, event, ("query", *labels), amount, kind=Kind.HISTOGRAM, unit="s", buckets=SECONDS_BUCKETS
    )


WORKER_METRICS: Final = by_name(
    Metric(COMPLETED, "Values stored", "committed"),
    Metric("xfetch_refresh_unchanged", "Those of them that a load had found unchanged", "found_unchanged"),
    Metric("xfetch_refresh_loads", "Calls of a loader, each for one key or for a batch", "load_begun"),
    Metric("xfetch_refresh_failed", "Refreshes that were abandoned", "failed", labels=("query", "kind")),
    Metric("xfetch_refresh_retried", "Failed attempts that were retried", "retried", labels=("query", "kind")),
    Metric(
        "xfetch_refresh_skipped",
        "Messages with nothing to do: already_fresh, the state that held the key; or put back: no_slot, no_budget",
        "skipped",
        labels=("query", "why"),
    ),
    Metric(
        "xfetch_stale_write_rejected",
        "Rejected writes: superseded, invalidated, lost",
        "rejected",
        labels=("query", "why"),
    ),
    Metric("xfetch_lock_contention", "Messages that found another run at their key", "contended"),
    Metric(DROPPED, "Unrecognised messages, by what was wrong", "message_dropped", labels=("reason",)),
    _duration("xfetch_refresh_duration_seconds", "From the lease to the commit", "committed", "run_seconds"),
    _duration("xfetch_refresh_lead_seconds", "From the claim to the commit (δ)", "committed", "delta_seconds"),
    _duration(
        "xfetch_budget_wait_seconds",
        "How long loads that had to wait for the budget waited",
        "waited_for_budget",
        "seconds",
    ),
    Metric(
        "refresher_feed_transactions",
        "Transactions of the graph whose changes were invalidated",
        "changes_invalidated",
        (),
        "transactions",
    ),
    Metric(
        "refresher_feed_bulk_transactions",
        "Those of them that changed too much to be named",
        "changes_invalidated",
        (),
        "bulk",
    ),
    Metric("refresher_feed_tags", "Tags that their changes invalidated", "changes_invalidated", (), "tags"),
    _duration(
        "refresher_staleness_seconds",
        "From a change of the graph until an entry was invalidated by the feed; from there until a new one was stored",
        "was_stale",
        "seconds",
        "until",
    ),
    Metric("xfetch_active_refreshes", "Runs in progress", "active", amount="more", kind=Kind.UP_DOWN),
    Metric("xfetch_active_locks", "Leases that are held", "active", amount="more", kind=Kind.UP_DOWN),
)


def _gauge(name: str, help_: str, *labels: str, unit: str = "") -> Metric:
    return Metric(name, help_, labels=labels, kind=Kind.GAUGE, unit=unit)


READY: Final = _gauge("refresher_ready", "State of what the worker needs: 1 is well, 0 is not", "part")
QUEUE_SIZE: Final = _gauge("xfetch_refresh_queue_size", "Early and stale refreshes in the queue")
DEAD_LETTERS: Final = _gauge("xfetch_dead_letters", "Dead letters that are kept", "query")
QUARANTINED: Final = _gauge(
    "xfetch_quarantined_keys", "Keys of which several refreshes in a row were abandoned", "query"
)
SHARES: Final = _gauge(
    "refresher_budget_shares", "Loads in progress under the query's budget; under the namespace's: *", "query"
)
PENDING_TAGS: Final = _gauge("refresher_tag_invalidations_pending", "Invalidations of tags that are not finished yet")
OLDEST_CHANGE: Final = _gauge(
    "refresher_feed_oldest_change_seconds", "Age of the graph's oldest change that may not be invalidated yet", unit="s"
)
TTL: Final = _gauge("xfetch_query_ttl_seconds", "Soft expiry of the query's values after their load", "query", unit="s")
GRACE: Final = _gauge("xfetch_query_grace_seconds", "How long they may be served after it", "query", unit="s")


@counting(WORKER_METRICS)
class MeteredWorkerEvents(Metered, WorkerEvents):
    """Records a worker's events in the metrics of a back end."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(WORKER_METRICS, backend)

    def expect(self, queries: Iterable[str]) -> None:
        """Expose registered queries at 0, because Prometheus sees no increase in a counter's first value."""
        for query in queries:
            self._backend.bind(COMPLETED, self._labels.of(query, is_proven=True))
        for reason in DropReason:
            self._backend.bind(DROPPED, reason)

    def acquired(self, query: str) -> None:
        """Count the start of a run."""
        self.count("active", query, more=1)

    def ended(self, query: str) -> None:
        """Count the end of a run."""
        self.count("active", query, more=-1)

    def skipped(self, query: str, *, why: str) -> None:
        """Count an item that was not loaded."""
        self.count("skipped", query, why=why)
        if why in HELD:
            self.count("contended", query)


Values: TypeAlias = Mapping[Metric, Mapping[tuple[str, ...], float]]
"""The values of gauges, by their labels' values."""


@dataclass(frozen=True, slots=True)
class WorkerGauges:
    """Gauges that are looked up at each scrape or export.

    Args:
        waiting: returns the number of refreshes in the broker.
        letters: returns the present dead letters.
        shares: returns the number of loads in progress under a budget, by query.
        pending_tags: returns the number of unfinished invalidations of tags.
        oldest_change: returns the age in seconds of the oldest change that may not be invalidated yet, None without a
            feed.
        queries: the queries that the worker can load.
    """

    waiting: Callable[[], int]
    letters: Callable[[], Iterable[DeadLetter]]
    shares: Callable[[], Mapping[str, float]]
    pending_tags: Callable[[], int]
    oldest_change: Callable[[], float | None]
    queries: Registry

    def parts(self) -> Iterable[tuple[str, Callable[[], Values], tuple[Metric, ...]]]:
        """Return groups of gauges: the part that has to be ready ("": none), their look-up, and their metrics."""
        return (
            ("broker", lambda: {QUEUE_SIZE: {(): self.waiting()}}, (QUEUE_SIZE,)),
            ("cache", self.dead, (DEAD_LETTERS, QUARANTINED)),
            ("cache", lambda: {PENDING_TAGS: {(): self.pending_tags()}}, (PENDING_TAGS,)),
            ("cache", lambda: {SHARES: _by_query(self.shares())}, (SHARES,)),
            ("cache", self.feed, (OLDEST_CHANGE,)),
            ("", self.times, (TTL, GRACE)),
        )

    def dead(self) -> Values:
        """Return the numbers of dead letters and of keys in quarantine."""
        kept, quarantined = letters_by_query(self.letters(), (query.name for query in self.queries))
        return {DEAD_LETTERS: _by_query(kept), QUARANTINED: _by_query(quarantined)}

    def feed(self) -> Values:
        """Return the age of the oldest change that may not be invalidated yet."""
        age_seconds = self.oldest_change()
        return {} if age_seconds is None else {OLDEST_CHANGE: {(): age_seconds}}

    def times(self) -> Values:
        """Return the TTL and grace of each query."""
        return {
            TTL: {(query.name,): query.ttl_seconds for query in self.queries},
            GRACE: {(query.name,): query.grace_seconds for query in self.queries},
        }


def look_up(gauges: Callable[[], Values]) -> Values:
    """Return some gauges' values, or none if they are unavailable, which leaves a gap in the plot."""
    try:
        return gauges()
    except Exception as error:  # noqa: BLE001 - whatever is away now: the others are exported
        log.warning("could not collect some gauges: %s", type(error).__name__)
        return {}


def _by_query(values: Mapping[str, float]) -> Mapping[tuple[str, ...], float]:
    return {(query,): value for query, value in values.items()}
