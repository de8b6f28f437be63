"""Ports of the refresh flow: all that it is given by what wires it, and the hooks that it calls.

The hooks are no-ops here; `refresher.otel` and `telemetry` implement them. Spans of a trace::

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
"""Takes the outcomes of items, in their order."""


class RunsQueries(Protocol):
    """The part of a transaction that a loader uses."""

    def run(  # noqa: D102
        self, query: LiteralString, parameters: dict[str, Any] | None = None, **more: Any
    ) -> Any: ...


class Origin(Protocol):
    """Source of values: one for each call, given as its params, and what there is of it before."""

    def load(  # noqa: D102
        self,
        query: Query,
        calls: Sequence[Mapping[str, Any]],
        previous: Sequence[Previous | None],
        bookmarks: Sequence[str],
        timeout_seconds: float,
    ) -> Sequence[Loaded]: ...


class Encode(Protocol):
    """Encodes a value as a payload, not compressed yet, or raises LoadFailed."""

    def __call__(self, value: Any, *, query: str, max_bytes: int) -> Packed: ...  # noqa: D102


class LoadShare:
    """Share of the budgets that a load takes. This one is of no budget: loads are not limited."""

    def take(self) -> list[Outcome]:
        """Take it before anything else; returns the items' outcomes where it was refused, else none.

        Raises:
            CacheUnavailable: Redis did not answer.
        """
        return []

    def take_again(self) -> bool:
        """Take what one more load needs, in place of what the last one had; returns whether it was granted.

        Raises:
            CacheUnavailable: Redis did not answer.
        """
        return True

    def begin(self) -> None:
        """Record that a load begins: what was taken for it is charged."""

    def last_steps(self) -> list[Call[Any]]:
        """Return the steps by which the caller gives it back; none where nothing is held."""
        return []

    def give_back(self) -> None:
        """Give back what is still held. Where Redis does not answer, it ends by itself."""


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
        no_budget; or passed on to a worker whose release loads it: unknown_query, wrong_params.
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

    def changes_invalidated(self, *, transactions: int, tags: int, bulk: int) -> None:
        """Record that changes of the graph are invalidated; ``bulk`` of the transactions changed too much to name."""

    def was_stale(self, query: str, *, until: str, seconds: float) -> None:
        """Record for how long an entry was stale.

        From a change of the graph until the feed had ``invalidated`` it; from any invalidation until a value that was
        loaded after it was ``stored``.
        """


class CompositeWorkerEvents(WorkerEvents):
    """Several `WorkerEvents` as one that never raises. Spans are those of the first that records any."""

    def __init__(self, *events: WorkerEvents) -> None:
        Emitter(events).take_over(self)
        self.spans: WorkerSpans = next((one.spans for one in events if one.spans is not NO_SPANS), NO_SPANS)


def events_of(app: Any) -> WorkerEvents:
    """Return the hooks of a Celery app; no-ops where it was not set up for refreshes."""
    events: WorkerEvents = getattr(app, "refresher_events", WorkerEvents)()
    return events


@dataclass(frozen=True, slots=True)
class RefreshDeps:
    """The dependencies.

    ``publish`` sends an item at once. ``write_dead_letter`` writes a dead letter if it can, in the place of the key's
    one with that token (0: none). ``failure_of`` classifies anything that a load raises; None: this process ends.
    ``interruptible`` is the context of a load, which a time limit may interrupt. ``hands_back`` returns whether a run
    that an exception ends is handed back: it can't be finished here, and that is no fault of the key. ``is_in_place``:
    runs are within another task or load, with which they may end. ``register`` returns once an invalidation reaches
    the query's version. ``share_of`` returns what the load of some items takes from the budgets.
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
