"""What a reader hands to its publisher, and the bounded backlog in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from api_client.observe.tracing import NULL_TRACE, TriggerTrace
from api_client.protocol.keys import CacheKey
from api_client.protocol.messages import RefreshReason


class Trigger(msgspec.Struct, frozen=True):
    """One refresh to ask for.

    ``claim_number`` and ``claim_id`` are those of a claim that the caller has made itself (it waits for the value, and
    needed the stamp); without them the publisher claims, for the entry that carried ``seen_token``. ``mark`` is the
    number of the caller's mark (`TriggerSuppressor`); default ``seen_token``. ``is_republish``: the
    claim is another one's, whose message may be lost. ``done`` is called with the outcome (None: published, or need not
    be), on the publisher's thread or at once; it must neither block nor raise. ``asking`` is its way to the workers,
    for a trace.
    """

    key: CacheKey
    reason: RefreshReason
    seen_token: int | None = None
    claim_number: int = 0
    claim_id: str = ""
    has_waiter: bool = False
    done: Callable[[Exception | None], object] | None = None
    mark: int | None = None
    is_republish: bool = False
    asking: TriggerTrace = NULL_TRACE

    @property
    def noted_number(self) -> int:
        """The number under which this asking was noted."""
        return (self.seen_token or 0) if self.mark is None else self.mark


class TriggerDropped(ConnectionError):
    """A trigger that was not tried: breaker (of the broker, open), backpressure, backlog (of this process), closed."""

    def __init__(self, why: str) -> None:
        super().__init__(f"it was not tried ({why})")
        self.why = why


@dataclass(slots=True)
class Backlog:
    """Two queues, the first for those who wait. Any thread may `put`, without a lock: each step is one of a dict's.

    A key for which a trigger is in the second already takes no second place: the newer one, which knows the newer
    entry, replaces it. So a publisher that is held up for seconds is not filled by one key that is read often.
    """

    most: int
    waiting: dict[str, Trigger] = field(default_factory=dict)
    others: dict[str, Trigger] = field(default_factory=dict)

    def put(self, trigger: Trigger) -> bool:
        """Add a trigger; False when the backlog is full. Those who wait are bounded by the callers that wait."""
        # One that comes with a claim is that claim's own, and is told apart by it.
        place = trigger.claim_id or trigger.key.entry
        if trigger.has_waiter:
            self.waiting[place] = trigger
        elif place in self.others or len(self.others) < self.most:
            self.others[place] = trigger
        else:
            return False
        return True

    def take(self, most: int) -> list[Trigger]:
        """Remove up to ``most`` of the oldest triggers: of those who wait, and only else of the others."""
        queue = self.waiting or self.others
        # Copied in one step: another thread may put some between any two.
        taken = [queue.pop(place, None) for place in list(queue)[:most]]
        return [trigger for trigger in taken if trigger is not None]

    def __len__(self) -> int:
        return len(self.waiting) + len(self.others)
