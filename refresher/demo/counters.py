"""What the readers count, and how the counts of many threads and processes become one."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Final

_MIN_SECONDS: Final = 1e-6
_BUCKETS_PER_E: Final = 25
"""Buckets of a factor e: each is 4 % wide, so that a quantile is off by 2 % at most."""


@dataclass(slots=True)
class Histogram:
    """Durations in buckets that grow exponentially, from 1 µs up; small enough to be sent four times a second."""

    buckets: Counter[int] = field(default_factory=Counter)
    longest_seconds: float = 0.0

    @property
    def count(self) -> int:
        """How many durations were recorded."""
        return self.buckets.total()

    def record(self, duration_seconds: float) -> None:
        """Count one duration."""
        self.buckets[round(math.log(max(duration_seconds / _MIN_SECONDS, 1.0)) * _BUCKETS_PER_E)] += 1
        self.longest_seconds = max(self.longest_seconds, duration_seconds)

    def merge(self, other: Histogram) -> None:
        """Add what another has counted."""
        self.buckets.update(other.buckets)
        self.longest_seconds = max(self.longest_seconds, other.longest_seconds)

    def quantile_seconds(self, share: float) -> float:
        """Return the duration that ``share`` (0 to 1) of all were within; 0 when there are none."""
        left = share * self.count
        for bucket in sorted(self.buckets):
            left -= self.buckets[bucket]
            if left <= 0:
                return min(_MIN_SECONDS * math.exp(bucket / _BUCKETS_PER_E), self.longest_seconds)
        return self.longest_seconds


@dataclass(slots=True)
class Tally:
    """The counts of readers, by how a read ended.

    ``at_once`` holds the latencies of reads answered from the cache, ``waited`` those that met a cold key,
    ``without_worker`` those answered from the cache while no worker was alive. ``overdue_seconds`` is the most by
    which a served value was past its time.
    """

    fresh: int = 0
    stale: int = 0
    misses: int = 0
    failed: int = 0
    suppressed: int = 0
    triggered: int = 0
    deduplicated: int = 0
    dropped: int = 0
    trigger_failures: int = 0
    overdue_seconds: float = 0.0
    at_once: Histogram = field(default_factory=Histogram)
    waited: Histogram = field(default_factory=Histogram)
    without_worker: Histogram = field(default_factory=Histogram)

    @property
    def reads(self) -> int:
        """All reads that ended."""
        return self.fresh + self.stale + self.misses + self.failed

    @property
    def spared(self) -> int:
        """How often a due refresh was not asked for, because it was under way already."""
        return self.suppressed + self.deduplicated

    def merge(self, other: Tally) -> None:
        """Add what another has counted."""
        for item in fields(self):
            mine, theirs = getattr(self, item.name), getattr(other, item.name)
            if isinstance(mine, Histogram):
                mine.merge(theirs)
            elif isinstance(mine, float):
                setattr(self, item.name, max(mine, theirs))
            else:
                setattr(self, item.name, mine + theirs)
