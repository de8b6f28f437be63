"""Results of simulated scenarios: charts, tables and figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Final

from benchmarks.reports.charts import Plot, Series
from benchmarks.reports.results import Figure, Must, Result, Table, TableCell, Target, figure
from benchmarks.simulate.engine.outcome import Outcome
from benchmarks.simulate.engine.simulation import load_of
from benchmarks.simulate.engine.state import Amount, Count
from benchmarks.simulate.options import Scenario
from benchmarks.simulate.recovery import (
    APPLIED_AT,
    TRIGGERS,
    Recovered,
    recovery,
    recovery_figures,
    recovery_plot,
    recovery_table,
)
from benchmarks.simulate.scenarios import FEED_TTLS, HEAVY, OVERLOAD, QUEUES, TITLES, WEIGHED

_LARGE_KEYS: Final = 10_000_000
_LARGE_READS: Final = 600_000_000
_MAX_SECONDS: Final = Target(Must.AT_MOST, 300)
_MAX_GIB: Final = Target(Must.AT_MOST, 1.5)
_MAX_OF_FIFO: Final = Target(Must.AT_MOST, 0.5)
_COLUMNS: Final = (
    "run", "workers", "million_reads", "loads", "early", "stale", "misses", "stale_reads_%", "waiting_reads_%",
    "timed_out_%", "wrong_reads_%", "wait_p50_ms", "wait_p99_ms", "lead_p50_ms", "lead_p99_ms", "in_time_%", "busy_%",
    "longest_queue", "dropped", "repeated", "forgotten", "seconds",
)  # fmt: skip

_SHARES: Final = (Amount.STALE_READS, Amount.WAITING_READS, Amount.TIMED_OUT_READS, Amount.WRONG_READS)


def result_of(scenario: Scenario, outcomes: Mapping[str, Outcome]) -> Result:
    """Return the result of a scenario; some have no chart, since their curves coincide."""
    title, figures = TITLES[scenario], _figures(outcomes)
    tables = [Table(title, _COLUMNS, [(name, *_row(outcome)) for name, outcome in outcomes.items()])]
    charts: Sequence[Plot] = ()
    if scenario is Scenario.WORKER_OUTAGE:
        charts = _outage(outcomes)
    elif scenario is Scenario.FLEET:
        charts = (_fleet(outcomes),)
    elif scenario is Scenario.BETA:
        charts = (_beta(outcomes),)
    elif scenario is Scenario.OVERLOAD:
        figures += _overload_figures(outcomes)
        charts = (_overload(outcomes),)
    elif scenario is Scenario.RECOVERY:
        recovered = _recovered(outcomes)
        figures += recovery_figures(recovered)
        tables.append(recovery_table(recovered))
        charts = (recovery_plot(recovered),)
    elif scenario is Scenario.FEED:
        charts = _feed(outcomes)
    return Result(scenario.value, title, figures, tables=tables, charts=charts)


def _figures(outcomes: Mapping[str, Outcome]) -> list[Figure]:
    """Return the time and memory of the simulation; targets are for ten million keys and 600 million reads."""
    longest = max(outcomes.values(), key=lambda outcome: outcome.wall_seconds)
    is_large = longest.model.keys >= _LARGE_KEYS and longest.reads >= _LARGE_READS
    memory = max(outcome.most_bytes for outcome in outcomes.values()) / 2**30
    return [
        figure(
            "longest run: wall time", (longest.wall_seconds,), "s", _MAX_SECONDS if is_large else None,
            f"{longest.model.keys:,} keys, {longest.reads:,.0f} reads, {longest.loads():,} loads",
        ),
        figure("most memory so far", (memory,), "GiB", _MAX_GIB if is_large else None),
    ]  # fmt: skip


def _row(outcome: Outcome) -> tuple[TableCell, ...]:
    counters = outcome.counters.sum(axis=1)
    return (
        outcome.model.workers,
        outcome.reads / 1e6, outcome.loads(), *map(outcome.loads, (Count.EARLY, Count.STALE, Count.MISS)),
        *(100 * outcome.share(amount) for amount in _SHARES),
        outcome.wait_ms(50), outcome.wait_ms(99), outcome.lead_ms(50), outcome.lead_ms(99),
        100 * outcome.in_time_share, 100 * outcome.utilisation,
        int(outcome.lengths.sum(axis=0).max()),
        *(int(counters[count]) for count in (Count.DROPPED, Count.AGAIN, Count.FORGOTTEN)), outcome.wall_seconds,
    )  # fmt: skip


def _outage(outcomes: Mapping[str, Outcome]) -> Sequence[Plot]:
    """Plot the effects of an outage, second by second, with the product's default grace highlighted."""

    def plot(what: str, title: str, y_label: str, amount: Amount, unit: float) -> Plot:
        series = (
            Series(name, tuple(map(float, range(one.model.seconds))), tuple(map(float, one.amounts[amount] * unit)))
            for name, one in outcomes.items()
        )
        return Plot(
            f"worker-outage-{what}", f"worker-outage: {title}", "time (s)", y_label, tuple(series),
            caption=f"{title}, second by second.", ours=("grace 3600 s",),
        )  # fmt: skip

    percent = 100 / next(iter(outcomes.values())).model.reads_per_second
    return (
        plot("stale-share", "stale share", "reads served stale (%)", Amount.STALE_READS, percent),
        plot("waiting-reads", "waiting reads", "reads that begin to wait (reads/s)", Amount.WAITING_READS, 1.0),
    )


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


def _feed(outcomes: Mapping[str, Outcome]) -> Sequence[Plot]:
    """Plot loads and reads of outdated values over the rate of writes."""
    found = {cache: [settled(one) for name, one in outcomes.items() if name.startswith(cache)] for cache in FEED_TTLS}

    def plot(what: str, y_label: str, of: Callable[[Outcome], float]) -> Plot:
        series = (
            Series(cache, tuple(60 * one.model.writes for one in ones), tuple(map(of, ones)))
            for cache, ones in found.items()
        )
        title = f"feed: {y_label} against writes"
        ours = (next(iter(FEED_TTLS)),)
        return Plot(f"simulated-feed-{what}", title, "writes/min of each key", y_label, tuple(series), ours=ours)

    return (
        plot("loads", "loads/s", lambda one: one.loads() / one.model.seconds),
        plot("wrong-reads", "reads of an outdated value (%)", lambda one: 100 * one.share(Amount.WRONG_READS)),
    )


def _overload_figures(outcomes: Mapping[str, Outcome]) -> list[Figure]:
    def stale_share(run: str) -> float:
        return settled(outcomes[f"{OVERLOAD:.0%}, {run}"]).stale_share

    weighed, not_weighed = (stale_share(f"{HEAVY}, {which}") for which in WEIGHED)
    note = f"{weighed:.1%} against {not_weighed:.1%}"
    return [
        fifo_figure(*map(stale_share, QUEUES)),
        figure(f"{HEAVY}: loads weighed, against not weighed", (weighed / not_weighed,), note=note),
    ]


def fifo_figure(window: float, fifo: float) -> Figure:
    """Return the stale share at twice the load, relative to that of a queue that takes everything."""
    what, note = "stale reads at twice the load, against first in, first out", f"{window:.1%} against {fifo:.1%}"
    return figure(what, (window / fifo,), "×", _MAX_OF_FIFO, note)


def settled(outcome: Outcome) -> Outcome:
    """Return the second half of a run."""
    return outcome.since(outcome.model.seconds // 2)


def _recovered(outcomes: Mapping[str, Outcome]) -> Sequence[Recovered]:
    found = []
    for name, outcome in outcomes.items():
        trigger = next(one for one in TRIGGERS if name.endswith(one.name))
        seen = recovery(outcome.late_shares, APPLIED_AT, APPLIED_AT + trigger.seconds)
        found.append(Recovered(trigger.name, load_of(outcome.model), trigger.length(outcome.model), seen))
    return found
