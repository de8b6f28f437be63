"""Triggers of refreshes, and the bounded backlog between readers and their publisher."""

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
        key: what to refresh, and ``reason``, why.
        seen_token: claim for the entry with this token; None: for whatever is there.
        claim_number, claim_id: of its claim, where it has one: made by a caller that needed the stamp for its wait, or
            by the publisher. The id is empty for a claim that is not to be taken back.
        has_waiter: a reader waits for the value.
        done: called with the outcome (None: published, or need not be), on the publisher's thread or at once; it must
            neither block nor raise.
        run_seconds: what a load of it has taken on average; 0: not known.
        mark: as the `TriggerSuppressor` knows it.
        is_republish: the claim is another's, whose message may be lost.
        trace: its way to the workers.
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
    """A trigger that was not tried: breaker (of the broker, open), backpressure, backlog (of this process), closed.

    ``reason`` is what the broker failed with where its breaker is open.
    """

    def __init__(self, why: str, reason: str = "") -> None:
        super().__init__(why)  # alone, for a copy is made of it
        self.why: str = why
        self.reason: str = reason

    def __str__(self) -> str:
        return f"it was not tried ({self.why})"


@dataclass(slots=True)
class Backlog:
    """Two queues, the first for triggers with a waiter. Any thread may `put`, without a lock: each step is a dict's.

    A key has one place in the second queue: a newer trigger, which knows the newer entry, replaces the one there. So a
    publisher that is held up for seconds is not filled by one key that is read often.
    """

    capacity: int
    waiting: dict[str, Trigger] = field(default_factory=dict)
    others: dict[str, Trigger] = field(default_factory=dict)

    def put(self, trigger: Trigger) -> bool:
        """Add a trigger; False when the backlog is full. Triggers with a waiter are bounded by the waiting callers."""
        # One with a claim of its own has a place of its own.
        place = trigger.claim_id or trigger.key.entry
        if trigger.has_waiter:
            self.waiting[place] = trigger
        elif place in self.others or len(self.others) < self.capacity:
            self.others[place] = trigger
        else:
            return False
        return True

    def take(self, limit: int) -> list[Trigger]:
        """Remove up to ``limit`` of the oldest triggers of one queue: the first, unless it is empty."""
        queue = self.waiting or self.others
        # Copied in one step: another thread may put some between any two.
        taken = [queue.pop(place, None) for place in list(queue)[:limit]]
        return [trigger for trigger in taken if trigger is not None]

    def __len__(self) -> int:
        return len(self.waiting) + len(self.others)
