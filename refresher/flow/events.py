"""Hooks of a worker for metrics and for the spans of a trace: no-ops; `refresher.otel` and `telemetry` implement them.

::

    processing ── a message's item, to its outcome
     ├─ a step of its lease record (acquire, commit …)          `lease_steps`
     ├─ a load, one for each attempt                            `origin`
     │   └─ each query that the loader runs on the graph        `transaction`
     └─ a step of its lease record
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from api_client.observe.events import Emitter
from refresher.flow.outcome import Outcome

if TYPE_CHECKING:
    from api_client.protocol.messages import RefreshItem
    from api_client.transport.scripts import LeaseStepRunner
    from refresher.flow.ports import Origin, RunsQueries
    from refresher.queries import Query
    from refresher.settings import WorkerSettings

RecordOutcomes: TypeAlias = Callable[[Sequence[Outcome]], object]
"""Takes the outcomes of items, in their order."""


class DropReason(StrEnum):
    """Reason why a message was rejected: the label of its metric."""

    NO_ENVELOPE = "no_envelope"
    HEADERS = "headers"
    NO_TASK = "no_task"
    NO_ID = "no_id"
    OTHER_TASK = "other_task"
    PROTOCOL = "protocol"
    NOT_JSON = "not_json"
    TOO_LARGE = "too_large"
    UNDECODABLE = "undecodable"
    BODY = "body"
    ARGUMENTS = "arguments"
    CALLBACKS = "callbacks"
    NOT_OURS = "not_ours"


class WorkerSpans:
    """The spans of a worker: none."""

    def processing(
        self, items: Sequence[RefreshItem], request: Any, settings: WorkerSettings
    ) -> AbstractContextManager[RecordOutcomes]:
        """Return spans around the handling of items of a task's request, which are loaded together.

        They are given the outcomes before they end.
        """
        return nullcontext(_ignore_outcomes)

    def lease_steps(self, steps: LeaseStepRunner) -> LeaseStepRunner:
        """Return ``steps`` with a span around each step."""
        return steps

    def origin(self, origin: Origin) -> Origin:
        """Return ``origin`` with a span around each load."""
        return origin

    def transaction(self, tx: RunsQueries, query: Query, settings: WorkerSettings) -> RunsQueries:
        """Return ``tx`` with a span around each query that it runs."""
        return tx


def _ignore_outcomes(_: Sequence[Outcome]) -> None:
    """Take outcomes."""


NO_SPANS: Final = WorkerSpans()


class WorkerEvents:
    """The events of a worker. Durations in seconds."""

    spans: WorkerSpans = NO_SPANS
    """The hooks for spans."""

    def acquired(self, query: str) -> None:
        """Record a run that begins."""

    def load_begun(self, query: str, *, keys: int) -> None:
        """Record a load that begins: one call of a loader, for so many keys."""

    def committed(self, query: str, *, delta_seconds: float, run_seconds: float, as_stale: bool) -> None:
        """Record a value stored; ``as_stale`` where an invalidation had met the run."""

    def found_unchanged(self, query: str) -> None:
        """Record that what was just recorded as stored is the value from before, which a load has found unchanged."""

    def rejected(self, query: str, *, why: str) -> None:
        """Record a write that was refused: superseded, invalidated, lost."""

    def skipped(self, query: str, *, why: str) -> None:
        """Record a message with nothing to do: already_fresh, or the state of the record that held the key.

        Or one that was put back, to come again later: no_slot, since its query held all the slots that it may, or
        no_budget.
        """

    def waited_for_budget(self, query: str, *, seconds: float) -> None:
        """Record that a load had to wait for its share of the budgets, whether it was granted then or not."""

    def retried(self, query: str, *, kind: str, attempt: int, pause_seconds: float) -> None:
        """Record a failed attempt that will be repeated."""

    def failed(self, query: str, *, kind: str, attempts: int) -> None:
        """Record an abandoned refresh."""

    def ended(self, query: str) -> None:
        """Record that a run has ended, however it did, and holds its lease no longer."""

    def message_dropped(self, *, reason: str) -> None:
        """Record a message that was dropped unread, for one `DropReason`."""


class CompositeWorkerEvents(WorkerEvents):
    """Several `WorkerEvents` as one that never raises. Spans are those of the first that records any."""

    def __init__(self, *events: WorkerEvents) -> None:
        self._emit = Emitter(events).emit
        self.spans: WorkerSpans = next((one.spans for one in events if one.spans is not NO_SPANS), NO_SPANS)

    def acquired(self, query: str) -> None:
        """Record a run that begins."""
        self._emit(WorkerEvents.acquired, query)

    def load_begun(self, query: str, *, keys: int) -> None:
        """Record a load that begins."""
        self._emit(WorkerEvents.load_begun, query, keys=keys)

    def committed(self, query: str, *, delta_seconds: float, run_seconds: float, as_stale: bool) -> None:
        """Record a value stored."""
        self._emit(
            WorkerEvents.committed, query, delta_seconds=delta_seconds, run_seconds=run_seconds, as_stale=as_stale
        )

    def found_unchanged(self, query: str) -> None:
        """Record that the value just stored is the one from before."""
        self._emit(WorkerEvents.found_unchanged, query)

    def rejected(self, query: str, *, why: str) -> None:
        """Record a write that was refused."""
        self._emit(WorkerEvents.rejected, query, why=why)

    def skipped(self, query: str, *, why: str) -> None:
        """Record a message with nothing to do."""
        self._emit(WorkerEvents.skipped, query, why=why)

    def waited_for_budget(self, query: str, *, seconds: float) -> None:
        """Record that a load had to wait for its share."""
        self._emit(WorkerEvents.waited_for_budget, query, seconds=seconds)

    def retried(self, query: str, *, kind: str, attempt: int, pause_seconds: float) -> None:
        """Record a failed attempt that will be repeated."""
        self._emit(WorkerEvents.retried, query, kind=kind, attempt=attempt, pause_seconds=pause_seconds)

    def failed(self, query: str, *, kind: str, attempts: int) -> None:
        """Record a refresh that was given up."""
        self._emit(WorkerEvents.failed, query, kind=kind, attempts=attempts)

    def ended(self, query: str) -> None:
        """Record that a run has ended."""
        self._emit(WorkerEvents.ended, query)

    def message_dropped(self, *, reason: str) -> None:
        """Record a message that was dropped unread."""
        self._emit(WorkerEvents.message_dropped, reason=reason)


def events_of(app: Any) -> WorkerEvents:
    """Return the hooks of a Celery app; no-ops where it was not set up for refreshes."""
    events: WorkerEvents = getattr(app, "refresher_events", WorkerEvents)()
    return events
