"""Recovery from temporary faults: the applied faults, and the time for which reads notice them afterwards."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.reports.charts import Plot, Series
from benchmarks.reports.results import Figure, Must, Table, Target, figure
from benchmarks.simulate.engine.model import Fault, Model

APPLIED_AT: Final = 120
TOLERANCE: Final = 0.01
MAX_LENGTHS: Final = 2.0
UP_TO_LOAD: Final = 0.8
SPIKE_TIMES: Final = 5.0
SLOW_TIMES: Final = 10.0
MEAN_SECONDS: Final = 5
_LEVEL_SECONDS: Final = 60
_WATCHED: Final = 2.2
_ROUNDING: Final = 1e-6
_COLUMNS: Final = ("trigger", "load_%", "length_s", "before_%", "peak_%", "recovered_s", "x_length")


@dataclass(frozen=True, slots=True)
class Trigger:
    """Fault that is applied for some seconds, made from its start and end; with 0 seconds it is momentary."""

    name: str
    seconds: int
    fault: Callable[[int, int], Fault]

    def length(self, model: Model) -> float:
        """Return its length in seconds; a flush's is the time in which the fleet could load everything lost."""
        return self.seconds or model.keys * (model.service + model.costs.turnaround) / model.workers

    def applied(self, model: Model) -> Model:
        """Return the model with the fault, watched for two TTLs, to see an echo, and for longer than it may last."""
        ends = APPLIED_AT + self.seconds
        watched = max(2 * model.ttl, _WATCHED * self.length(model))
        return replace(model, fault=self.fault(APPLIED_AT, ends), seconds=ends + math.ceil(watched))


TRIGGERS: Final = (
    Trigger("5 × the reads for 30 s", 30, lambda *span: Fault(spike=span, spike_times=SPIKE_TIMES)),
    Trigger("FLUSHALL", 0, lambda begins, _: Fault(flush=begins)),
    Trigger("graph 10 × slower for 60 s", 60, lambda *span: Fault(slow=span, slow_times=SLOW_TIMES)),
    Trigger("workers killed, back after 30 s", 30, lambda *span: Fault(down=span)),
    Trigger("broker down for 10 s, then empty", 10, lambda *span: Fault(broker=span)),
)


class Recovery(NamedTuple):
    """Shares of reads, and seconds from the end of the fault until the end of its effect or of the run."""

    before: float
    peak: float
    seconds: float


class Recovered(NamedTuple):
    """One fault at one load; ``length`` in seconds."""

    trigger: str
    load: float
    length: float
    seen: Recovery

    @property
    def lengths(self) -> float:
        """Time to recover, as a multiple of the fault's length."""
        return self.seen.seconds / self.length


def recovery(shares: NDArray[np.float64], begins: int, ends: int) -> Recovery:
    """Return the recovery of reads, whose end is the time from which their share stays at its earlier level.

    Args:
        shares: the share of each second's reads that got a stale value or waited.
        begins, ends: the start and end of the fault. The level is the mean of the minute before; the mean of the
            following five seconds may be at most a percentage point above it.
    """
    before = float(shares[max(0, begins - _LEVEL_SECONDS) : begins].mean())
    means = np.convolve(shares[ends:], np.full(MEAN_SECONDS, 1 / MEAN_SECONDS), mode="valid")
    above = np.flatnonzero(means > before + TOLERANCE)
    seconds = float(above[-1] + 1) if len(above) else 0.0
    return Recovery(before, float(shares[begins:].max()), seconds)


def recovery_plot(recovered: Sequence[Recovered]) -> Plot:
    """Return the plot of times to recover over the load, with one line per fault, and the bar."""
    series = [
        Series(trigger, tuple(100 * one.load for one in of_it), tuple(one.lengths for one in of_it))
        for trigger in _triggers(recovered)
        if (of_it := [one for one in recovered if one.trigger == trigger])
    ]
    loads = [100 * one.load for one in recovered]
    bar = Series("the bar", (min(loads), 100 * UP_TO_LOAD), (MAX_LENGTHS, MAX_LENGTHS))
    return Plot(
        "recovery", "recovery: time to recover against load", "load (% of what the fleet can carry)",
        "time to recover (× the trigger's length)", (*series, bar),
        caption="From the end of the trigger until stale and waiting reads stay at their share before.",
    )  # fmt: skip


def recovery_table(recovered: Sequence[Recovered]) -> Table:
    """Return the table with a row for each fault and load."""
    rows = [
        (
            one.trigger, 100 * one.load, one.length, 100 * one.seen.before, 100 * one.seen.peak, one.seen.seconds,
            one.lengths,
        )
        for one in recovered
    ]  # fmt: skip
    return Table("recovery", _COLUMNS, rows)


def recovery_figures(recovered: Sequence[Recovered]) -> list[Figure]:
    """Return, for each fault, the longest time to recover up to the load that counts."""
    bar = Target(Must.AT_MOST, MAX_LENGTHS)
    counted = [one for one in recovered if one.load < UP_TO_LOAD + _ROUNDING]
    return [
        figure(
            f"{name}: time to recover, up to {UP_TO_LOAD:.0%} load",
            (max(one.lengths for one in counted if one.trigger == name),), "× its length", bar,
        )
        for name in _triggers(counted)
    ]  # fmt: skip


def _triggers(recovered: Sequence[Recovered]) -> list[str]:
    return list(dict.fromkeys(one.trigger for one in recovered))
