"""Charts and tables of simulated runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

from benchmarks.reports.charts import Plot, Series
from benchmarks.reports.results import Figure, Must, Table, TableCell, Target, figure
from benchmarks.simulate.options import Scenario
from benchmarks.simulate.outcome import Outcome
from benchmarks.simulate.recovery import APPLIED_AT, MAX_LENGTHS, TRIGGERS, UP_TO_LOAD, Recovered, recovery
from benchmarks.simulate.simulation import load_of
from benchmarks.simulate.state import (
    AGAIN,
    DROPPED,
    EARLY,
    FORGOTTEN,
    MISS,
    STALE,
    STALE_READS,
    WAITING_READS,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    _Of = Callable[[Outcome], NDArray[np.float64] | NDArray[np.int64]]


def charts_of(scenario: Scenario, outcomes: Mapping[str, Outcome]) -> Sequence[Plot]:
    """Return the charts of a scenario; a table says all of the others, whose curves coincide."""
    if scenario is Scenario.WORKER_OUTAGE:
        return _outage(outcomes)
    if scenario is Scenario.FLEET:
        return (_fleet(outcomes),)
    if scenario is Scenario.OVERLOAD:
        return (_overload(outcomes),)
    if scenario is Scenario.RECOVERY:
        return (recovery_plot("recovery", "recovery", recoveries_of(outcomes)),)
    return (_beta(outcomes),) if scenario is Scenario.BETA else ()


def _outage(outcomes: Mapping[str, Outcome]) -> Sequence[Plot]:
    """Return the effects of an outage, second by second; the product's default grace is highlighted."""

    def plot(what: str, title: str, y_label: str, of: _Of) -> Plot:
        return Plot(
            f"worker-outage-{what}", f"worker-outage: {title}", "time (s)", y_label, _series(outcomes, of),
            caption=f"{title}, second by second.", ours=("grace 3600 s",),
        )  # fmt: skip

    return (
        plot("stale-share", "stale share", "reads served stale (%)", _stale_percent),
        plot("waiting-reads", "waiting reads", "reads that begin to wait (reads/s)", _waiting),
    )


def _series(outcomes: Mapping[str, Outcome], of: _Of) -> tuple[Series, ...]:
    return tuple(
        Series(name, tuple(map(float, range(outcome.model.seconds))), tuple(map(float, of(outcome))))
        for name, outcome in outcomes.items()
    )


def _stale_percent(outcome: Outcome) -> NDArray[np.float64]:
    percent: NDArray[np.float64] = 100 * outcome.amounts[STALE_READS] / outcome.model.reads_per_second
    return percent


def _waiting(outcome: Outcome) -> NDArray[np.float64]:
    waiting: NDArray[np.float64] = outcome.amounts[WAITING_READS]
    return waiting


def _fleet(outcomes: Mapping[str, Outcome]) -> Plot:
    sizes = tuple(float(outcome.model.workers) for outcome in outcomes.values())
    stale = tuple(100 * outcome.stale_share for outcome in outcomes.values())
    busy = tuple(100 * outcome.utilisation for outcome in outcomes.values())
    return Plot(
        "fleet-stale-share", "fleet: stale share against workers", "worker processes", "share (%)",
        (Series("reads served stale", sizes, stale), Series("workers busy", sizes, busy)),
        caption="Below the size that keeps up, the share grows for as long as the run lasts.",
        ours=("reads served stale",), x_log=True, y_log=True,
    )  # fmt: skip


def _beta(outcomes: Mapping[str, Outcome]) -> Plot:
    series = []
    for ttl, of_ttl in groupby(outcomes.values(), key=lambda outcome: outcome.model.ttl):
        lazy, *early = of_ttl
        cost = tuple(100 * (outcome.loads() / lazy.loads() - 1) for outcome in early)
        series.append(Series(f"TTL {ttl:g} s", cost, tuple(100 * outcome.stale_share for outcome in early)))
    return Plot(
        "beta-stale-share", "β: stale share against additional loads, β growing to the right",
        "loads more than without early refresh (%)", "reads served stale (%)", tuple(series),
        caption="One line per TTL, one point per β.", y_log=True,
    )  # fmt: skip


def _overload(outcomes: Mapping[str, Outcome]) -> Plot:
    def series(label: str, *, is_fifo: bool) -> Series:
        alike = [one for one in outcomes.values() if one.model.heavy_times == 1.0]
        of_it = [one for one in alike if (one.model.overloaded_after == math.inf) is is_fifo]
        shares = tuple(100 * settled(one).stale_share for one in of_it)
        return Series(label, tuple(load_of(one.model) for one in of_it), shares)

    return Plot(
        "overload-stale-share", "overload: stale share against load",
        "load (× what the fleet can carry)", "reads served stale (%)",
        (series("with the window", is_fifo=False), series("first in, first out", is_fifo=True)),
        caption="In the second half of the run. One point per fleet.", ours=("with the window",),
    )  # fmt: skip


MAX_OF_FIFO: Final = Target(Must.AT_MOST, 0.5)
"""The bar for the stale share at twice the load."""


def settled(outcome: Outcome) -> Outcome:
    """Return the second half of a run."""
    return outcome.since(outcome.model.seconds // 2)


def recoveries_of(outcomes: Mapping[str, Outcome]) -> Sequence[Recovered]:
    """Return how reads recovered in each run of the scenario."""
    found = []
    for name, outcome in outcomes.items():
        trigger = next(one for one in TRIGGERS if name.endswith(one.name))
        seen = recovery(outcome.late_shares, APPLIED_AT, APPLIED_AT + trigger.seconds)
        found.append(Recovered(trigger.name, load_of(outcome.model), trigger.length(outcome.model), seen))
    return found


def recovery_plot(name: str, title: str, recovered: Sequence[Recovered]) -> Plot:
    """Return the times to recover over the load, one line per trigger, and the bar."""
    series = [
        Series(trigger, tuple(100 * one.load for one in of_it), tuple(one.lengths for one in of_it))
        for trigger in _triggers(recovered)
        if (of_it := [one for one in recovered if one.trigger == trigger])
    ]
    loads = [100 * one.load for one in recovered]
    bar = Series("the bar", (min(loads), 100 * UP_TO_LOAD), (MAX_LENGTHS, MAX_LENGTHS))
    return Plot(
        name, f"{title}: time to recover against load", "load (% of what the fleet can carry)",
        "time to recover (× the trigger's length)", (*series, bar),
        caption="From the end of the trigger until stale and waiting reads stay at their share before.",
    )  # fmt: skip


_ROUNDING: Final = 1e-6
_RECOVERY_COLUMNS: Final = ("trigger", "load_%", "length_s", "before_%", "peak_%", "recovered_s", "x_length")


def recovery_table(title: str, recovered: Sequence[Recovered]) -> Table:
    """Return a line for each trigger and load."""
    rows = [
        (
            one.trigger, 100 * one.load, one.length, 100 * one.seen.before, 100 * one.seen.peak, one.seen.seconds,
            one.lengths,
        )
        for one in recovered
    ]  # fmt: skip
    return Table(title, _RECOVERY_COLUMNS, rows)


def recovery_figures(recovered: Sequence[Recovered]) -> list[Figure]:
    """Return for each trigger the longest time to recover, up to the load that counts."""
    bar = Target(Must.AT_MOST, MAX_LENGTHS)
    counted = [one for one in recovered if one.load < UP_TO_LOAD + _ROUNDING]
    longest = [max(one.lengths for one in counted if one.trigger == name) for name in _triggers(counted)]
    return [
        figure(f"{name}: time to recover, up to {UP_TO_LOAD:.0%} load", (one,), "× its length", bar)
        for name, one in zip(_triggers(counted), longest, strict=True)
    ]


def _triggers(recovered: Sequence[Recovered]) -> list[str]:
    return list(dict.fromkeys(one.trigger for one in recovered))


_RUN_COLUMNS: Final = (
    "run", "workers", "million_reads", "loads", "early", "stale", "misses", "stale_reads_%", "waiting_reads_%",
    "timed_out_%", "wait_p50_ms", "wait_p99_ms", "lead_p50_ms", "lead_p99_ms", "in_time_%", "busy_%", "longest_queue",
    "dropped", "repeated", "forgotten", "seconds",
)  # fmt: skip


def runs_table(title: str, outcomes: Mapping[str, Outcome]) -> Table:
    """Return a line for each run of a scenario."""
    return Table(title, _RUN_COLUMNS, [(name, *_summary(outcome)) for name, outcome in outcomes.items()])


def _summary(outcome: Outcome) -> tuple[TableCell, ...]:
    counters = outcome.counters.sum(axis=1)
    return (
        "-" if outcome.model.in_readers else outcome.model.workers,
        outcome.reads / 1e6, outcome.loads(), outcome.loads(EARLY), outcome.loads(STALE), outcome.loads(MISS),
        100 * outcome.stale_share, 100 * outcome.waiting_share, 100 * outcome.timed_out_share,
        outcome.wait_ms(50), outcome.wait_ms(99), outcome.lead_ms(50), outcome.lead_ms(99),
        100 * outcome.in_time_share, None if outcome.model.in_readers else 100 * outcome.utilisation,
        int(outcome.lengths.sum(axis=0).max()), int(counters[DROPPED]), int(counters[AGAIN]),
        int(counters[FORGOTTEN]), outcome.wall_seconds,
    )  # fmt: skip
