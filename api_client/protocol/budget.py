"""Load budgets of a namespace and of a query, over all workers: loads per second and loads at once.

::

    take_share ──▶ acquire ──▶ load ──▶ commit, release_share       (renewed every few seconds while it lasts)
         └─ refused: asks again after a pause; misses go first, then stale values, then early refreshes

A share is one load, of one key or of a batch. No process leads: each worker takes its shares with one script, which
charges both budgets or neither. The share of a worker that dies ends by itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from api_client.protocol.keys import budget_keys
from api_client.protocol.lease import Call

SHARE_SECONDS: Final = 5.0
"""Life of a share that is not renewed; the same for all, so a later end means that Redis' clock was set back."""
BURST_SECONDS: Final = 0.1
"""Loads that are due within this time may begin at once, but at least one may."""
LONGEST_PAUSE_SECONDS: Final = 0.25
"""Longest pause before a refused load asks again; ``take_share.lua`` relies on it."""
MIN_RATE: Final = 0.001
MAX_RATE: Final = 10_000
MAX_CONCURRENCY: Final = 10_000


class Urgency(StrEnum):
    """Urgency of a load, the most urgent first."""

    MISS = "miss"
    STALE = "stale"
    EARLY = "early"


@dataclass(frozen=True, slots=True)
class Budget:
    """Bounds of a namespace or a query: loads that begin per second, and loads at once; None for no bound."""

    rate: float | None = None
    concurrency: int | None = None

    @property
    def is_bounded(self) -> bool:
        """True if the budget bounds anything."""
        return self.rate is not None or self.concurrency is not None

    def __str__(self) -> str:
        rate = [] if self.rate is None else [f"{self.rate:g}/s"]
        return ", ".join(rate + ([] if self.concurrency is None else [f"{self.concurrency} at once"])) or "none"

    @property
    def interval_us(self) -> int:
        """The time from one load to the next in µs; 0 without a rate."""
        return 0 if self.rate is None else math.ceil(1e6 / self.rate)

    @property
    def arguments(self) -> tuple[int, int, int]:
        """Loads at once, interval and burst, as arguments of ``take_share``."""
        burst_us = max(0, round(BURST_SECONDS * 1e6) - self.interval_us) if self.rate is not None else 0
        return self.concurrency or 0, self.interval_us, burst_us


@dataclass(frozen=True, slots=True)
class Share:
    """One load of ``query`` under both budgets; ``name`` is a random name of its own."""

    namespace: str
    query: str
    name: str
    of_all: Budget
    of_query: Budget

    def take(self, urgency: Urgency) -> Call[float]:
        """Return the call that takes the share; its result is 0 if granted, else the seconds until it may be."""
        return Call(
            "take_share",
            self._keys,
            (self.name, urgency.value, _HOLDS_US, *self.of_all.arguments, *self.of_query.arguments),
            _seconds,
        )

    def renew(self) -> Call[float]:
        """Return the call that renews the share; its result is the seconds for which it holds, 0 if it has ended."""
        all_shares, _, query_shares, _ = self._keys
        return Call("renew_share", (all_shares, query_shares), (self.name, _HOLDS_US), _seconds)

    def release(self, *, refund: bool) -> Call[bool]:
        """Return the call that gives the share back; with ``refund`` nothing was loaded, so the rate is not charged."""
        refunds = (self.of_all.interval_us, self.of_query.interval_us) if refund else (0, 0)
        return Call("release_share", self._keys, (self.name, *refunds), bool)

    @property
    def _keys(self) -> tuple[str, ...]:
        return *budget_keys(self.namespace), *budget_keys(self.namespace, self.query)


_HOLDS_US: Final = round(SHARE_SECONDS * 1e6)


def _seconds(reply: bytes) -> float:
    return int(reply) / 1e6
