"""Refresh triggers, and the bounded backlog between readers and their publisher."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from api_client.observe.tracing import NULL_TRACE, TriggerTrace
from api_client.protocol.keys import CacheKey
from api_client.protocol.messages import RefreshReason


class Trigger(msgspec.Struct, frozen=True):
    """One refresh to claim and publish.

    Attributes:
        key: the key to refresh.
        reason: the reason for the refresh.
        seen_token: the token of the entry to claim for; None for any entry.
        claim_number, claim_id: its claim, if any, made by a caller that needed the stamp for its wait, or by the
            publisher. The id is empty if the claim must not be taken back.
        has_waiter: True if a reader waits for the value.
        done: called with the outcome (None: published, or no need to), on the publisher's thread or at once; it must
            neither block nor raise.
        run_seconds: the average duration of its loads; 0 if unknown.
        mark: the entry's mark for the `TriggerSuppressor`.
        is_republish: True if the claim is another process's, whose message may be lost.
        trace: the trace of its way to the workers.
    """

    key: CacheKey
    reason: RefreshReason
    seen_token: int | None = None
    claim_number: int = 0
    claim_id: str = ""
    has_waiter: bool = False
    done: Callable[[Exception | None], object] | None = None
    run_seconds: float = 0.0
    mark: int = 0
    is_republish: bool = False
    trace: TriggerTrace = NULL_TRACE


class TriggerOutcome(StrEnum):
    """Outcome of a trigger."""

    PUBLISHED = "published"
    REPUBLISHED = "published again"
    DEDUPLICATED = "deduplicated"
    DROPPED = "dropped"
    FAILED = "failed"


class TriggerDropped(ConnectionError):
    """The trigger was not tried: the broker's breaker is open, backpressure, the backlog is full, the client is closed.

    ``reason`` is the broker's failure if its breaker is open.
    """

    def __init__(self, why: str, reason: str = "") -> None:
        super().__init__(why)  # only this argument, since the exception is copied
        self.why: str = why
        self.reason: str = reason

    def __str__(self) -> str:
        return f"it was not tried ({self.why})"


@dataclass(slots=True)
class Backlog:
    """Two queues, the first for triggers with a waiter. Any thread may `put`, without a lock, as each step is a dict's.

    A key has one place in the second queue: a newer trigger, which knows the newer entry, replaces an older one. So one
    popular key does not fill the backlog while the publisher is held up for seconds.
    """

    capacity: int
    waiting: dict[str, Trigger] = field(default_factory=dict)
    others: dict[str, Trigger] = field(default_factory=dict)

    def put(self, trigger: Trigger) -> bool:
        """Add a trigger; return False if the backlog is full. The waiting callers bound the triggers with a waiter."""
        # A trigger with a claim has a place of its own.
        place = trigger.claim_id or trigger.key.entry
        if trigger.has_waiter:
            self.waiting[place] = trigger
        elif place in self.others or len(self.others) < self.capacity:
            self.others[place] = trigger
        else:
            return False
        return True

    def take(self, limit: int) -> list[Trigger]:
        """Remove up to ``limit`` of the oldest triggers from the first queue, or if it is empty from the second."""
        queue = self.waiting or self.others
        # Copied in one step, since another thread may put a trigger between any two.
        taken = [queue.pop(place, None) for place in list(queue)[:limit]]
        return [trigger for trigger in taken if trigger is not None]

    def __len__(self) -> int:
        return len(self.waiting) + len(self.others)
