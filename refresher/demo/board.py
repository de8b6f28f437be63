"""The state of a run as it is shown: totals, what the last seconds were like, and what happened."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from refresher.demo.counters import Histogram, Tally

if TYPE_CHECKING:
    from refresher.checker.oracle import Checker
    from refresher.demo.reader_thread import Notes

WINDOW_SECONDS: Final = 2.0
MAX_MISSES: Final = 0.01


@dataclass(slots=True)
class Board:
    """Sums up what the reader processes note. Times are monotonic seconds.

    ``went_stale`` are the keys that were served stale without a worker, ``recovered`` when each was loaded again.
    """

    checker: Checker
    tally: Tally = field(default_factory=Tally)
    failures: list[str] = field(default_factory=list)
    went_stale: set[int] = field(default_factory=set)
    recovered: dict[int, float] = field(default_factory=dict)
    happened: list[tuple[float, str]] = field(default_factory=list)
    _recent: deque[tuple[float, Tally]] = field(default_factory=deque)
    _loads: deque[tuple[float, int]] = field(default_factory=deque)

    def take(self, notes: Notes, now: float) -> None:
        """Take in what a reader process has noted."""
        self.tally.merge(notes.tally)
        self._recent.append((now, notes.tally))
        self.failures.extend(notes.failures)
        self.went_stale |= notes.went_stale
        for number, at in notes.recovered.items():
            self.recovered[number] = min(at, self.recovered.get(number, at))
        for observation in notes.observations.values():
            self.checker.observe(observation)
        for sentence in notes.broken:
            self.checker.report(sentence)

    def note_loads(self, loads: int, now: float) -> None:
        """Take in how many queries the graph has been asked until now."""
        self._loads.append((now, loads))

    def still_stale(self) -> set[int]:
        """Return the keys that went stale without a worker and have no newer value yet."""
        return self.went_stale - self.recovered.keys()

    def reads_per_second(self, now: float) -> float:
        """Return the rate of the last two seconds."""
        return sum(tally.reads for _, tally in self._last(now)) / WINDOW_SECONDS

    def loads_per_second(self, now: float) -> float:
        """Return how many queries a second the graph was asked in the last two seconds."""
        while self._loads and self._loads[0][0] < now - WINDOW_SECONDS:
            self._loads.popleft()
        return (self._loads[-1][1] - self._loads[0][1]) / WINDOW_SECONDS if self._loads else 0.0

    def is_warm(self, now: float) -> bool:
        """Tell whether nearly all reads of the last two seconds were answered from the cache."""
        last = self._last(now)
        return sum(tally.misses for _, tally in last) < MAX_MISSES * sum(tally.reads for _, tally in last)

    def latency(self, now: float) -> Histogram:
        """Return the latencies of reads from the cache in the last two seconds."""
        merged = Histogram()
        for _, tally in self._last(now):
            merged.merge(tally.at_once)
        return merged

    def _last(self, now: float) -> list[tuple[float, Tally]]:
        while self._recent and self._recent[0][0] < now - WINDOW_SECONDS:
            self._recent.popleft()
        return list(self._recent)
