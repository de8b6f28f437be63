"""The pictures of the scenarios, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING

from benchmarks.plots import Plot, PlotKind, Series
from benchmarks.simulate.options import Mode, Scenario
from benchmarks.simulate.outcome import Outcome
from benchmarks.simulate.records import EARLY, MISS, STALE, STALE_READS, WAITING_READS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    _Of = Callable[[Outcome], NDArray[np.float64] | NDArray[np.int64]]


def plots_of(scenario: Scenario, outcomes: Mapping[str, Outcome]) -> tuple[Plot, ...]:
    """Return the pictures of a scenario."""
    if scenario is Scenario.STEADY:
        return (_by_name("steady-stale-share", outcomes),)
    if scenario is Scenario.FLEET:
        return (_fleet(outcomes),)
    if scenario is Scenario.BETA:
        return (_beta(outcomes),)
    return _over_time(scenario, outcomes)


def _over_time(scenario: Scenario, outcomes: Mapping[str, Outcome]) -> tuple[Plot, ...]:
    """Return what came of the trouble, second by second; a picture of nothing but zeros is none."""

    def plot(what: str, title: str, y_label: str, series: tuple[Series, ...]) -> Plot:
        name = f"{scenario.value}-{what}"
        caption = f"{title}, second by second."
        return Plot(name, f"{scenario.value}: {title}", "time (s)", y_label, series, PlotKind.LINES, caption)

    plots = (
        plot("stale-share", "stale share", "reads served stale (%)", _series(outcomes, _stale_percent)),
        plot("waiting-reads", "waiting reads", "reads that begin to wait (1/s)", _series(outcomes, _waiting)),
        plot("queue", "queue", "messages that wait", _series(outcomes, _queued)),
        plot("loads", "load of the origin", "loads (1/s)", _series(outcomes, _loads)),
    )
    return tuple(one for one in plots if any(any(series.y) for series in one.series))


def _series(outcomes: Mapping[str, Outcome], of: _Of) -> tuple[Series, ...]:
    return tuple(
        Series(name, tuple(map(float, range(outcome.world.seconds))), tuple(map(float, of(outcome))))
        for name, outcome in outcomes.items()
    )


def _stale_percent(outcome: Outcome) -> NDArray[np.float64]:
    percent: NDArray[np.float64] = 100 * outcome.amounts[STALE_READS] / outcome.world.reads_per_second
    return percent


def _waiting(outcome: Outcome) -> NDArray[np.float64]:
    waiting: NDArray[np.float64] = outcome.amounts[WAITING_READS]
    return waiting


def _queued(outcome: Outcome) -> NDArray[np.int64]:
    queued: NDArray[np.int64] = outcome.lengths.sum(axis=0)
    return queued


def _loads(outcome: Outcome) -> NDArray[np.int64]:
    loads: NDArray[np.int64] = outcome.counters[[EARLY, STALE, MISS]].sum(axis=0)
    return loads


def _by_name(name: str, outcomes: Mapping[str, Outcome]) -> Plot:
    """Return stale and waiting share of each mode, on workers and in readers."""
    modes = tuple(mode.value for mode in Mode)
    on_workers = tuple(100 * outcomes[mode].stale_share for mode in modes)
    in_readers = tuple(100 * outcomes[f"{mode}, in readers"].waiting_share for mode in modes)
    return Plot(
        name, "steady: who meets an expired entry", "mode", "share of reads (%)",
        (Series("on workers: served stale", modes, on_workers), Series("in readers: waited", modes, in_readers)),
        PlotKind.BARS, "On workers such a read gets the stale value at once; in readers it loads, or waits for a load.",
    )  # fmt: skip


def _fleet(outcomes: Mapping[str, Outcome]) -> Plot:
    sizes = tuple(float(outcome.world.workers) for outcome in outcomes.values())
    stale = tuple(100 * outcome.stale_share for outcome in outcomes.values())
    busy = tuple(100 * outcome.utilisation for outcome in outcomes.values())
    return Plot(
        "fleet-stale-share", "fleet: stale share against workers", "worker processes", "%",
        (Series("reads served stale", sizes, stale), Series("workers busy", sizes, busy)),
        caption="Below the size that keeps up, the share grows for as long as the run lasts.", x_log=True, y_log=True,
    )  # fmt: skip


def _beta(outcomes: Mapping[str, Outcome]) -> Plot:
    series = []
    for ttl, of_ttl in groupby(outcomes.values(), key=lambda outcome: outcome.world.ttl):
        lazy, *early = of_ttl
        cost = tuple(100 * (outcome.loads() / lazy.loads() - 1) for outcome in early)
        series.append(Series(f"TTL {ttl:g} s", cost, tuple(100 * outcome.stale_share for outcome in early)))
    return Plot(
        "beta-stale-share", "β: stale share against additional loads, β growing to the right",
        "loads more than without early refresh (%)", "reads served stale (%)", tuple(series),
        caption="One line a TTL, one point a β.", y_log=True,
    )  # fmt: skip
