"""Ports of the refresh flow: its dependencies, passed in by the wiring, and the hooks that it calls.

The hooks are no-ops here; `refresher.otel` and `telemetry` implement them. The spans of a trace::

    processing ── a message's item, to its outcome
     ├─ a step of its lease record (acquire, commit …)          `lease_steps`
     ├─ a load, one for each attempt                            `origin`
     │   └─ each query that the loader runs on the graph        `transaction`
     └─ a step of its lease record
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, LiteralString, Protocol, TypeAlias

from api_client.observe.events import Emitter
from api_client.protocol.lease import Call
from api_client.protocol.messages import RefreshItem
from api_client.protocol.payload import Packed
from api_client.transport.scripts import LeaseStepRunner
from refresher.errors import LoadFailed
from refresher.flow.dead_letters import DeadLetter
from refresher.flow.outcome import Outcome
from refresher.flow.renewals import Renewable
from refresher.queries import Loaded, Query, Registry
from refresher.results import Previous
from refresher.settings import WorkerSettings

RecordOutcomes: TypeAlias = Callable[[Sequence[Outcome]], object]
"""Takes the outcomes of items, in order."""


class RunsQueries(Protocol):
    """The part of a transaction that a loader uses."""

    def run(  # noqa: D102
        self, query: LiteralString, parameters: dict[str, Any] | None = None, **more: Any
    ) -> Any: ...


class Origin(Protocol):
    """Source of values: one for each call, given its params and the previous value."""

    def load(  # noqa: D102
        self,
        query: Query,
        calls: Sequence[Mapping[str, Any]],
        previous: Sequence[Previous | None],
        bookmarks: Sequence[str],
        timeout_seconds: float,
    ) -> Sequence[Loaded]: ...


class Encode(Protocol):
    """Encodes a value as a payload, still uncompressed, or raises LoadFailed."""

    def __call__(self, value: Any, *, query: str, max_bytes: int) -> Packed: ...  # noqa: D102


class LoadShare:
    """A load's share of the budgets. This one is for unlimited loads, and does nothing."""

    def take(self) -> list[Outcome]:
        """Take the share before anything else; return the items' outcomes if it was refused, otherwise none.

        Raises:
            CacheUnavailable: Redis did not answer.
        """
        return []

    def take_again(self) -> bool:
        """Take a share for one more load, in place of the last one's; return whether it was granted.

        Raises:
            CacheUnavailable: Redis did not answer.
        """
        return True

    def begin(self) -> None:
        """Record that a load begins, so that its share is charged."""

    def last_steps(self) -> list[Call[Any]]:
        """Return the steps by which the caller gives the share back; none if nothing is held."""
        return []

    def give_back(self) -> None:
        """Give back the share if still held. If Redis does not answer, it ends by itself."""


class DropReason(StrEnum):
    """Reason for rejecting a message, used as a metric label."""

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
    """The spans of a worker, which do nothing here."""

    def processing(
        self, items: Sequence[RefreshItem], request: Any, settings: WorkerSettings
    ) -> AbstractContextManager[RecordOutcomes]:
        """Return a context manager that traces the handling of a task's items, which are loaded together.

        It yields a function that takes the outcomes before the end.
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
    """Do nothing with the outcomes."""


NO_SPANS: Final = WorkerSpans()


class WorkerEvents:
    """The events of a worker. Durations in seconds."""

    spans: WorkerSpans = NO_SPANS
    """The hooks for spans."""

    def acquired(self, query: str) -> None:
        """Record the start of a run."""

    def load_begun(self, query: str, *, keys: int) -> None:
        """Record the start of a load: one call of a loader, for this many keys."""

    def committed(self, query: str, *, delta_seconds: float, run_seconds: float, as_stale: bool) -> None:
        """Record a stored value; ``as_stale`` if an invalidation came during the run."""

    def found_unchanged(self, query: str) -> None:
        """Record that the value just recorded as stored is the previous one, which a load found unchanged."""

    def rejected(self, query: str, *, why: str) -> None:
        """Record a write that was refused: superseded, invalidated, lost."""

    def skipped(self, query: str, *, why: str) -> None:
        """Record an item that was not loaded: already_fresh, or the state of the record that held the key.

        Also one that was put back for later: no_slot if its query held all its slots, or no_budget; or one passed on to
        a worker whose release may load it: unknown_query, wrong_params.
        """

    def waited_for_budget(self, query: str, *, seconds: float) -> None:
        """Record that a load had to wait for its share of the budgets, whether or not it was then granted."""

    def retried(self, query: str, *, kind: str, attempt: int, pause_seconds: float) -> None:
        """Record a failed attempt that will be repeated."""

    def failed(self, query: str, *, kind: str, attempts: int) -> None:
        """Record an abandoned refresh."""

    def ended(self, query: str) -> None:
        """Record that a run has ended in whatever way, and no longer holds its lease."""

    def message_dropped(self, *, reason: str) -> None:
        """Record a message that was dropped unread, with its `DropReason`."""

    def changes_invalidated(self, *, transactions: int, tags: int, bulk: int) -> None:
        """Record that the graph's changes are invalidated; ``bulk`` transactions changed too much to list."""

    def was_stale(self, query: str, *, until: str, seconds: float) -> None:
        """Record how long an entry was stale.

        With ``invalidated`` that is the time from a change of the graph until the feed's invalidation; with ``stored``
        from any invalidation until a value loaded after it was stored.
        """


class CompositeWorkerEvents(WorkerEvents):
    """Several `WorkerEvents` as one that never raises, with the spans of the first one that records any."""

    def __init__(self, *events: WorkerEvents) -> None:
        Emitter(events).take_over(self)
        self.spans: WorkerSpans = next((one.spans for one in events if one.spans is not NO_SPANS), NO_SPANS)


def events_of(app: Any) -> WorkerEvents:
    """Return the hooks of a Celery app; no-ops if it was not set up for refreshes."""
    events: WorkerEvents = getattr(app, "refresher_events", WorkerEvents)()
    return events


@dataclass(frozen=True, slots=True)
class RefreshDeps:
    """The dependencies of the refresh flow.

    ``publish`` sends an item at once. ``write_dead_letter`` writes a dead letter if it can, in place of the key's
    letter with that token (0: none). ``failure_of`` classifies an exception of a load; None means that this process
    ends. ``interruptible`` is the context of a load, which a time limit may interrupt. ``hands_back`` returns whether
    an exception hands its run back, because it can't be finished here through no fault of the key. With ``is_in_place``
    runs are within another task or load, and may end with it. ``register`` returns once an invalidation reaches the
    query's version. ``share_of`` returns the share of the budgets for a load of some items.
    """

    lease_steps: LeaseStepRunner
    origin: Origin
    encode: Encode
    registry: Registry
    keep_leases: Callable[[Sequence[Renewable]], AbstractContextManager[None]]
    publish: Callable[[RefreshItem], None]
    write_dead_letter: Callable[[DeadLetter, int], None]
    monotonic: Callable[[], float]
    sleep: Callable[[float], object]
    events: WorkerEvents
    failure_of: Callable[[BaseException], LoadFailed | None]
    interruptible: Callable[[], AbstractContextManager[None]] = nullcontext
    hands_back: Callable[[BaseException], bool] = lambda _: False
    is_in_place: bool = False
    uniform: Callable[[], float] = random.random
    register: Callable[[Query], object] = lambda _: None
    share_of: Callable[[Query | None, Sequence[RefreshItem]], LoadShare] = lambda *_: LoadShare()
