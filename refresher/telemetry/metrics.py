"""Metrics of a worker: their table, the events that feed them, and the gauges that are looked up at each export.

``xfetch_lock_contention`` is in the readers' table too: there claims that were refused, here messages that found
another run of their key.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from api_client.observe.metrics import Backend, Kind, Metric, QueryLabels, Record, by_name
from refresher.flow.dead_letters import DeadLetter, letters_by_query
from refresher.flow.ports import DropReason, WorkerEvents
from refresher.queries import Registry

log: Final = logging.getLogger(__name__)

SECONDS_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 150, 300)
HELD: Final = frozenset({"running", "retrying"})
"""The states of a lease record by which another run holds the key of a message."""
COMPLETED: Final = "xfetch_refresh_completed"
DROPPED: Final = "refresher_messages_dropped"
ACTIVE: Final = ("xfetch_active_refreshes", "xfetch_active_locks")


def _duration(name: str, help_: str) -> Metric:
    return Metric(name, help_, kind=Kind.HISTOGRAM, unit="s", buckets=SECONDS_BUCKETS)


WORKER_METRICS: Final = by_name(
    Metric(COMPLETED, "Values stored"),
    Metric("xfetch_refresh_unchanged", "Those of them that a load had found unchanged"),
    Metric("xfetch_refresh_loads", "Calls of a loader, each for one key or for a batch"),
    Metric("xfetch_refresh_failed", "Refreshes that were abandoned", labels=("query", "kind")),
    Metric("xfetch_refresh_retried", "Failed attempts that were retried", labels=("query", "kind")),
    Metric(
        "xfetch_refresh_skipped",
        "Messages with nothing to do: already_fresh, the state that held the key; or put back: no_slot, no_budget",
        labels=("query", "why"),
    ),
    Metric(
        "xfetch_stale_write_rejected",
        "Writes that were refused: superseded, invalidated, lost",
        labels=("query", "why"),
    ),
    Metric("xfetch_lock_contention", "Messages that found another run at their key"),
    Metric(DROPPED, "Unrecognised messages, by what was wrong", labels=("reason",)),
    _duration("xfetch_refresh_duration_seconds", "From the lease to the commit"),
    _duration("xfetch_refresh_lead_seconds", "From the claim to the commit (δ)"),
    _duration("xfetch_budget_wait_seconds", "For how long loads that had to wait for the budget did"),
    Metric(ACTIVE[0], "Runs in progress", kind=Kind.UP_DOWN),
    Metric(ACTIVE[1], "Leases that are held", kind=Kind.UP_DOWN),
)


def _gauge(name: str, help_: str, *labels: str, unit: str = "") -> Metric:
    return Metric(name, help_, labels, Kind.GAUGE, unit)


READY: Final = _gauge("refresher_ready", "Whether all is well with what the worker needs: 1, or 0", "part")
QUEUE_SIZE: Final = _gauge("xfetch_refresh_queue_size", "Early and stale refreshes that wait")
DEAD_LETTERS: Final = _gauge("xfetch_dead_letters", "Dead letters that are kept", "query")
QUARANTINED: Final = _gauge(
    "xfetch_quarantined_keys", "Keys of which several refreshes in a row were abandoned", "query"
)
SHARES: Final = _gauge(
    "refresher_budget_shares", "Loads in progress under the query's budget; under the namespace's: *", "query"
)
PENDING_TAGS: Final = _gauge("refresher_tag_invalidations_pending", "Invalidations of tags that are not finished yet")
TTL: Final = _gauge("xfetch_query_ttl_seconds", "Soft expiry of the query's values after their load", "query", unit="s")
GRACE: Final = _gauge("xfetch_query_grace_seconds", "For how long they may be served after it", "query", unit="s")


class MeteredWorkerEvents(WorkerEvents):
    """Records a worker's events in the metrics of a back end."""

    def __init__(self, backend: Backend) -> None:
        self._backend, self._labels = backend, QueryLabels()

    def _bind(self, name: str, query: str, *labels: str) -> Record:
        return self._backend.bind(name, self._labels.of(query), *labels)

    def expect(self, queries: Iterable[str]) -> None:
        """Expose registered queries at 0: a counter's value when it is first seen is no increase to Prometheus."""
        for query in queries:
            self._bind(COMPLETED, self._labels.of(query, is_proven=True))
        for reason in DropReason:
            self._backend.bind(DROPPED, reason)

    def acquired(self, query: str) -> None:
        """Count a run that begins."""
        for name in ACTIVE:
            self._bind(name, query)(1)

    def load_begun(self, query: str, *, keys: int) -> None:
        """Count a load that begins."""
        self._bind("xfetch_refresh_loads", query)(1)

    def ended(self, query: str) -> None:
        """Count a run that has ended."""
        for name in ACTIVE:
            self._bind(name, query)(-1)

    def committed(self, query: str, *, delta_seconds: float, run_seconds: float, as_stale: bool) -> None:
        """Count a value stored."""
        self._bind(COMPLETED, query)(1)
        self._bind("xfetch_refresh_duration_seconds", query)(run_seconds)
        self._bind("xfetch_refresh_lead_seconds", query)(delta_seconds)

    def found_unchanged(self, query: str) -> None:
        """Count a value that was found unchanged."""
        self._bind("xfetch_refresh_unchanged", query)(1)

    def rejected(self, query: str, *, why: str) -> None:
        """Count a write that was refused."""
        self._bind("xfetch_stale_write_rejected", query, why)(1)

    def skipped(self, query: str, *, why: str) -> None:
        """Count a message with nothing to do."""
        self._bind("xfetch_refresh_skipped", query, why)(1)
        if why in HELD:
            self._bind("xfetch_lock_contention", query)(1)

    def waited_for_budget(self, query: str, *, seconds: float) -> None:
        """Count a wait for the budget."""
        self._bind("xfetch_budget_wait_seconds", query)(seconds)

    def retried(self, query: str, *, kind: str, attempt: int, pause_seconds: float) -> None:
        """Count a failed attempt that will be repeated."""
        self._bind("xfetch_refresh_retried", query, kind)(1)

    def failed(self, query: str, *, kind: str, attempts: int) -> None:
        """Count a refresh that was given up."""
        self._bind("xfetch_refresh_failed", query, kind)(1)

    def message_dropped(self, *, reason: str) -> None:
        """Count a message that was dropped unread."""
        self._backend.bind(DROPPED, reason)(1)


Values: TypeAlias = Mapping[Metric, Mapping[tuple[str, ...], float]]
"""The values of gauges, by those of their labels."""


@dataclass(frozen=True, slots=True)
class WorkerGauges:
    """Gauges that are looked up at each scrape or export.

    Args:
        waiting: how many refreshes wait in the broker.
        letters: the dead letters that are kept.
        shares: how many loads are in progress under a budget, by query.
        pending_tags: how many invalidations of tags are not finished.
        queries: what the worker can load.
    """

    waiting: Callable[[], int]
    letters: Callable[[], Iterable[DeadLetter]]
    shares: Callable[[], Mapping[str, float]]
    pending_tags: Callable[[], int]
    queries: Registry

    def queue(self) -> Values:
        """Return how many refreshes wait."""
        return {QUEUE_SIZE: {(): self.waiting()}}

    def dead(self) -> Values:
        """Return the dead letters."""
        kept, quarantined = letters_by_query(self.letters(), (query.name for query in self.queries))
        return {DEAD_LETTERS: _by_query(kept), QUARANTINED: _by_query(quarantined)}

    def tags(self) -> Values:
        """Return how many invalidations of tags are not finished."""
        return {PENDING_TAGS: {(): self.pending_tags()}}

    def budgets(self) -> Values:
        """Return the loads in progress under a budget."""
        return {SHARES: _by_query(self.shares())}

    def times(self) -> Values:
        """Return the lifetimes that the queries give their values."""
        return {
            TTL: {(query.name,): query.ttl_seconds for query in self.queries},
            GRACE: {(query.name,): query.grace_seconds for query in self.queries},
        }


def look_up(gauges: Callable[[], Values]) -> Values:
    """Return some gauges' values; none where they can't be had: a gap in the graph shows it."""
    try:
        return gauges()
    except Exception as error:  # noqa: BLE001 - whatever is away now: the others are exported
        log.warning("could not collect some gauges: %s", type(error).__name__)
        return {}


def _by_query(values: Mapping[str, float]) -> Mapping[tuple[str, ...], float]:
    return {(query,): value for query, value in values.items()}
