"""Outcome of a simulated run."""

from __future__ import annotations

import math
import resource
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from benchmarks.simulate.engine.model import Model
from benchmarks.simulate.engine.state import (
    LEAD_BINS_PER_DECADE,
    MIN_LEAD_SECONDS,
    WAIT_BINS_PER_SECOND,
    Amount,
    Count,
    State,
    cumulate,
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Counts by second, along the last axis. ``amounts`` are expected values: reads, and seconds of workers.

    ``waits`` are reads by their wait (ms), ``leads`` commits by their lead time, ``wall_seconds`` the duration of the
    simulation without compilation.
    """

    model: Model
    counters: NDArray[np.int64]
    amounts: NDArray[np.float64]
    waits: NDArray[np.float64]
    leads: NDArray[np.int64]
    lengths: NDArray[np.int64]
    wall_seconds: float
    most_bytes: int

    @classmethod
    def of(cls, model: Model, state: State, lengths: NDArray[np.int64], wall_seconds: float) -> Self:
        return cls(
            model, state.counters, cumulate(state.amounts), cumulate(state.waits), state.leads, lengths, wall_seconds,
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        )  # fmt: skip

    def since(self, second: int) -> Self:
        """Return the outcome without its first seconds, except that waits and leads are those of the whole run."""
        return replace(
            self,
            model=replace(self.model, seconds=self.model.seconds - second),
            counters=self.counters[:, second:],
            amounts=self.amounts[:, second:],
            lengths=self.lengths[:, second:],
        )

    @property
    def reads(self) -> float:
        return float(self._reads_by_second.sum())

    @property
    def _reads_by_second(self) -> NDArray[np.float64]:
        begins, ends = self.model.fault.spike
        seconds = np.arange(self.model.seconds)
        times = np.where((seconds >= begins) & (seconds < ends), self.model.fault.spike_times, 1.0)
        return self.model.reads_per_second * times

    def loads(self, *reasons: Count) -> int:
        """Return the number of loads that began, for these reasons or for all."""
        return int(self.counters[list(reasons or (Count.EARLY, Count.STALE, Count.MISS))].sum())

    def share(self, amount: Amount) -> float:
        return float(self.amounts[amount].sum()) / self.reads

    @property
    def stale_share(self) -> float:
        """Share of reads that got a value past its soft expiry."""
        return self.share(Amount.STALE_READS)

    @property
    def late_shares(self) -> NDArray[np.float64]:
        late = self.amounts[Amount.STALE_READS] + self.amounts[Amount.WAITING_READS]
        return np.asarray(late / self._reads_by_second)

    @property
    def utilisation(self) -> float:
        return float(self.amounts[Amount.BUSY].sum()) / (self.model.workers * self.model.seconds)

    @property
    def in_time_share(self) -> float:
        """Share of refreshes that were committed before the soft expiry."""
        commits = int(self.counters[Count.COMMITS].sum())
        return int(self.counters[Count.COMMITS_IN_TIME].sum()) / commits if commits else math.nan

    def wait_ms(self, percent: float) -> float:
        """Return a percentile of the waits of waiting reads; those that gave up count with the longest wait."""
        gave_up = float(self.amounts[Amount.TIMED_OUT_READS].sum())
        found = _percentile_bin(np.append(self.waits, gave_up), percent)
        return found if math.isnan(found) else min(found + 1, len(self.waits)) * 1000 / WAIT_BINS_PER_SECOND

    def lead_ms(self, percent: float) -> float:
        """Return a percentile of the lead times at commit, in steps of 12 %."""
        found = _percentile_bin(self.leads.astype(np.float64), percent)
        return float(MIN_LEAD_SECONDS * 10 ** ((found + 0.5) / LEAD_BINS_PER_DECADE) * 1000)


def _percentile_bin(counts: NDArray[np.float64], percent: float) -> float:
    """Return the bin of a percentile, or NaN without counts."""
    summed = np.cumsum(counts)
    return float(np.searchsorted(summed, summed[-1] * percent / 100)) if summed[-1] > 0 else math.nan
