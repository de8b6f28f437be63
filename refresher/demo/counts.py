"""Counts of a run, merged over the readers' threads and processes, with violations and a history of events."""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from refresher.checker.oracle import Checker, Observation

WINDOW_SECONDS: Final = 2.0
MAX_MISS_SHARE: Final = 0.01
_MIN_SECONDS: Final = 1e-6
_BUCKETS_PER_E: Final = 25
"""Buckets per factor e; each is 4 % wide, so that a quantile is off by at most 2 %."""


@dataclass(slots=True)
class Histogram:
    """Durations in buckets that grow exponentially, from 1 µs up; small enough to be sent four times a second."""

    buckets: Counter[int] = field(default_factory=Counter)
    longest_seconds: float = 0.0

    @property
    def count(self) -> int:
        """Number of recorded durations."""
        return self.buckets.total()

    def record(self, duration_seconds: float) -> None:
        """Count one duration."""
        self.buckets[round(math.log(max(duration_seconds / _MIN_SECONDS, 1.0)) * _BUCKETS_PER_E)] += 1
        self.longest_seconds = max(self.longest_seconds, duration_seconds)

    def merge(self, other: Histogram) -> None:
        """Add the counts of another."""
        self.buckets.update(other.buckets)
        self.longest_seconds = max(self.longest_seconds, other.longest_seconds)

    def quantile_seconds(self, share: float) -> float:
        """Return the quantile of the durations at ``share`` (0 to 1); 0 if there are none."""
        left = share * self.count
        for bucket in sorted(self.buckets):
            left -= self.buckets[bucket]
            if left <= 0:
                return min(_MIN_SECONDS * math.exp(bucket / _BUCKETS_PER_E), self.longest_seconds)
        return self.longest_seconds


@dataclass(slots=True)
class Tally:
    """The counts of readers' reads by outcome.

    ``gave_up`` counts reads that waited on a cold key for longer than their timeout. ``at_once`` has the latencies of
    reads served from the cache, ``waited`` those of reads of a cold key, ``without_worker`` those of reads served from
    the cache while no worker was alive. ``overdue_seconds`` is the greatest age of a served value beyond its TTL.
    """

    fresh: int = 0
    stale: int = 0
    misses: int = 0
    gave_up: int = 0
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
        return self.fresh + self.stale + self.misses + self.gave_up + self.failed

    @property
    def spared(self) -> int:
        """Due refreshes that were not triggered because one was already in progress."""
        return self.suppressed + self.deduplicated

    def merge(self, other: Tally) -> None:
        """Add the counts of another."""
        for item in fields(self):
            mine, theirs = getattr(self, item.name), getattr(other, item.name)
            if isinstance(mine, Histogram):
                mine.merge(theirs)
            elif isinstance(mine, float):
                setattr(self, item.name, max(mine, theirs))
            else:
                setattr(self, item.name, mine + theirs)


@dataclass(slots=True)
class Report:
    """Observations of a reader process since its last report.

    ``went_stale`` are keys (by number) served stale while no worker was alive; ``recovered`` maps those with a newer
    value since then to the start of its load (monotonic, s).
    """

    tally: Tally = field(default_factory=Tally)
    observations: dict[tuple[str, int, bool], Observation] = field(default_factory=dict)
    went_stale: set[int] = field(default_factory=set)
    recovered: dict[int, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


@dataclass(slots=True)
class RunState:
    """Sum of the reader processes' reports. Times are monotonic seconds.

    ``went_stale`` are the keys that were served stale without a worker, ``recovered`` the times when they were loaded
    again; ``history`` has the events with their times.
    """

    checker: Checker
    tally: Tally = field(default_factory=Tally)
    failures: list[str] = field(default_factory=list)
    went_stale: set[int] = field(default_factory=set)
    recovered: dict[int, float] = field(default_factory=dict)
    history: list[tuple[float, str]] = field(default_factory=list)
    _recent: deque[tuple[float, Tally]] = field(default_factory=deque)

    def add(self, report: Report, now: float) -> None:
        """Add the report of a reader process."""
        self.tally.merge(report.tally)
        self._recent.append((now, report.tally))
        self.failures.extend(report.failures)
        self.went_stale |= report.went_stale
        for number, at in report.recovered.items():
            self.recovered[number] = min(at, self.recovered.get(number, at))
        for observation in report.observations.values():
            self.checker.observe(observation)
        for sentence in report.broken:
            self.checker.report(sentence)

    def still_stale(self) -> set[int]:
        """Return the keys that went stale without a worker and have no newer value yet."""
        return self.went_stale - self.recovered.keys()

    def recent(self, now: float) -> Tally:
        """Return the counts of the last two seconds."""
        while self._recent and self._recent[0][0] < now - WINDOW_SECONDS:
            self._recent.popleft()
        merged = Tally()
        for _, tally in self._recent:
            merged.merge(tally)
        return merged

    def is_warm(self, now: float) -> bool:
        """Return whether nearly all reads of the last two seconds were served from the cache."""
        recent = self.recent(now)
        return recent.misses < MAX_MISS_SHARE * recent.reads
