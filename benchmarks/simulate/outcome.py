"""Outcome of a simulated run."""

from __future__ import annotations

import math
import resource
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from benchmarks.simulate.model import Model
from benchmarks.simulate.state import (
    BUSY,
    COMMITS,
    COMMITS_IN_TIME,
    EARLY,
    LEAD_BINS_PER_DECADE,
    MIN_LEAD_SECONDS,
    MISS,
    STALE,
    STALE_READS,
    TIMED_OUT_READS,
    WAIT_BINS_PER_SECOND,
    WAITING_READS,
    State,
    cumulate,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Outcome:
    """All by second, along the last axis. ``amounts`` are expected: reads, and seconds of workers.

    ``waits`` are reads by how long they waited (ms), ``leads`` commits by their lead time.
    """

    model: Model
    counters: NDArray[np.int64]
    amounts: NDArray[np.float64]
    waits: NDArray[np.float64]
    leads: NDArray[np.int64]
    lengths: NDArray[np.int64]
    prepare_seconds: float
    run_seconds: float
    most_bytes: int

    @classmethod
    def of(
        cls, model: Model, state: State, lengths: NDArray[np.int64], *, prepare_seconds: float, run_seconds: float
    ) -> Self:
        return cls(
            model, state.counters, cumulate(state.amounts), cumulate(state.waits), state.leads, lengths,
            prepare_seconds, run_seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        )  # fmt: skip

    def since(self, second: int) -> Self:
        """Return the same without its first seconds; waits and leads are those of all of it."""
        return replace(
            self,
            model=replace(self.model, seconds=self.model.seconds - second),
            counters=self.counters[:, second:],
            amounts=self.amounts[:, second:],
            lengths=self.lengths[:, second:],
        )

    @property
    def wall_seconds(self) -> float:
        """Duration of the simulation, without compiling."""
        return self.prepare_seconds + self.run_seconds

    @property
    def reads(self) -> float:
        """Expected number of reads."""
        return float(self.reads_by_second.sum())

    @property
    def reads_by_second(self) -> NDArray[np.float64]:
        """Expected number of reads in each second."""
        begins, ends = self.model.fault.spike
        seconds = np.arange(self.model.seconds)
        times = np.where((seconds >= begins) & (seconds < ends), self.model.fault.spike_times, 1.0)
        return self.model.reads_per_second * times

    def loads(self, *reasons: int) -> int:
        """Return how many loads began, for these reasons or for all."""
        return int(self.counters[list(reasons or (EARLY, STALE, MISS))].sum())

    @property
    def stale_share(self) -> float:
        """The share of reads that got a value past its soft expiry."""
        return self._share(STALE_READS)

    @property
    def waiting_share(self) -> float:
        return self._share(WAITING_READS)

    @property
    def late_shares(self) -> NDArray[np.float64]:
        """The share of the reads of each second that got a stale value, or waited."""
        late: NDArray[np.float64] = self.amounts[[STALE_READS, WAITING_READS]].sum(axis=0) / self.reads_by_second
        return late

    @property
    def timed_out_share(self) -> float:
        """The share of reads that waited in vain."""
        return self._share(TIMED_OUT_READS)

    @property
    def utilisation(self) -> float:
        """The share of their time that the workers were busy."""
        return float(self.amounts[BUSY].sum()) / (self.model.workers * self.model.seconds)

    @property
    def in_time_share(self) -> float:
        """The share of refreshes that were committed before the soft expiry."""
        commits = int(self.counters[COMMITS].sum())
        return int(self.counters[COMMITS_IN_TIME].sum()) / commits if commits else math.nan

    def wait_ms(self, percent: float) -> float:
        """Return a percentile of what the reads waited that waited; those that gave up count with the longest wait."""
        gave_up = float(self.amounts[TIMED_OUT_READS].sum())
        bin_number = _percentile_bin(np.append(self.waits, gave_up), percent)
        return math.nan if bin_number is None else min(bin_number + 1, len(self.waits)) * 1000 / WAIT_BINS_PER_SECOND

    def lead_ms(self, percent: float) -> float:
        """Return a percentile of the lead times at commit, in steps of 12 %."""
        bin_number = _percentile_bin(self.leads.astype(np.float64), percent)
        if bin_number is None:
            return math.nan
        return float(MIN_LEAD_SECONDS * 10 ** ((bin_number + 0.5) / LEAD_BINS_PER_DECADE) * 1000)

    def _share(self, what: int) -> float:
        return float(self.amounts[what].sum()) / self.reads


def _percentile_bin(counts: NDArray[np.float64], percent: float) -> int | None:
    """Return the bin of a percentile; None of nothing."""
    summed = np.cumsum(counts)
    if len(summed) == 0 or summed[-1] <= 0:
        return None
    return int(np.searchsorted(summed, summed[-1] * percent / 100))
