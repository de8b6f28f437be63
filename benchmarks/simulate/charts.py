"""Charts and tables of simulated runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

from benchmarks.reports.charts import Plot, Series
from benchmarks.reports.results import Table, TableCell
from benchmarks.simulate.options import Scenario
from benchmarks.simulate.outcome import Outcome
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
