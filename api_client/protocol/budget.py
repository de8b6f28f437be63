"""Budgets for loads, of a namespace and of a query over all workers: how many begin a second, and are in progress.

::

    take_share ──▶ acquire ──▶ load ──▶ commit, release_share       (renewed every few seconds while it lasts)
         └─ refused: asked again after a pause; misses go first, then stale values, then early refreshes

A share is one load: that of one key, or of a batch. Nobody leads: each worker takes its own by one script, which both
budgets allow, or none. The share of a worker that dies ends by itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from api_client.protocol.keys import budget_keys
from api_client.protocol.lease import Call

SHARE_SECONDS: Final = 5.0
"""For how long a share holds that is not renewed. The same for all: one that ends later must be of another time."""
BURST_SECONDS: Final = 0.1
"""So much of a rate's loads may begin at once, but one at least."""
LONGEST_PAUSE_SECONDS: Final = 0.25
"""Longest pause before a refused load asks again while it waits; ``take_share.lua`` counts on it."""
MIN_RATE: Final = 0.001
MAX_RATE: Final = 10_000
MAX_CONCURRENCY: Final = 10_000


class Urgency(StrEnum):
    """Urgency of a load; the first goes first."""

    MISS = "miss"
    STALE = "stale"
    EARLY = "early"


@dataclass(frozen=True, slots=True)
class Budget:
    """The bounds of a namespace or of a query: loads that begin a second, and loads at once. None: not bounded."""

    rate: float | None = None
    concurrency: int | None = None

    @property
    def is_bounded(self) -> bool:
        """True where it bounds anything."""
        return self.rate is not None or self.concurrency is not None

    def __str__(self) -> str:
        rate = [] if self.rate is None else [f"{self.rate:g}/s"]
        return ", ".join(rate + ([] if self.concurrency is None else [f"{self.concurrency} at once"])) or "none"

    @property
    def interval_us(self) -> int:
        """The time from one load to the next; 0: not bounded."""
        return 0 if self.rate is None else math.ceil(1e6 / self.rate)

    @property
    def arguments(self) -> tuple[int, int, int]:
        """Loads at once, interval and burst, as ``take_share`` takes them."""
        burst_us = max(0, round(BURST_SECONDS * 1e6) - self.interval_us) if self.rate is not None else 0
        return self.concurrency or 0, self.interval_us, burst_us


@dataclass(frozen=True, slots=True)
class Share:
    """One load of ``query`` under both budgets; ``name`` is drawn for it."""

    namespace: str
    query: str
    name: str
    of_all: Budget
    of_query: Budget

    def take(self, urgency: Urgency) -> Call[float]:
        """Return the call that takes it: 0 when it was granted, else the seconds after which it may be."""
        return Call(
            "take_share",
            self._keys,
            (self.name, urgency.value, _HOLDS_US, *self.of_all.arguments, *self.of_query.arguments),
            _seconds,
        )

    def renew(self) -> Call[float]:
        """Return the call that keeps it: the seconds for which it holds, 0 when it has ended."""
        all_shares, _, query_shares, _ = self._keys
        return Call("renew_share", (all_shares, query_shares), (self.name, _HOLDS_US), _seconds)

    def release(self, *, refund: bool) -> Call[bool]:
        """Return the call that gives it back; with ``refund`` nothing was loaded, and the rate is not charged."""
        refunds = (self.of_all.interval_us, self.of_query.interval_us) if refund else (0, 0)
        return Call("release_share", self._keys, (self.name, *refunds), bool)

    @property
    def _keys(self) -> tuple[str, ...]:
        return *budget_keys(self.namespace), *budget_keys(self.namespace, self.query)


_HOLDS_US: Final = round(SHARE_SECONDS * 1e6)


def _seconds(reply: bytes) -> float:
    return int(reply) / 1e6
