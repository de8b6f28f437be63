"""The pictures of a run, as data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks.plots import Plot, PlotKind, Series
from benchmarks.statistics import percentile
from benchmarks.topology.cell import Outcome
from benchmarks.topology.leads import leads_ms
from benchmarks.topology.levels import Contestant, GraphKind, Mode, Point, Setting
from benchmarks.topology.options import BASE_BETA, TopologyOptions
from benchmarks.topology.plan import MODES, beta_point, points
from benchmarks.topology.spread import (
    Metric,
    Table,
    p95_ms,
    reads_per_second,
    recomputes_per_second,
    stale_percent,
    waited_percent,
)

_NAMES: Final = {GraphKind.RMAT: "R-MAT", GraphKind.SNB: "social network"}
_MIN_LEADS: Final = 5


def pictures(
    graph: GraphKind, outcomes: Sequence[Outcome], measured: Table, options: TopologyOptions
) -> Iterator[Plot]:  # fmt: skip
    """Yield the pictures of one graph."""
    levels = options.extent.levels
    at_base = [
        point
        for point in points(options.extent)
        if point.graph is graph and point.pause_seconds == levels.pauses_seconds[0]
        and point.ttl_seconds == levels.ttls_seconds[0] and point.skew is levels.skews[0]
    ]  # fmt: skip
    yield Plot(
        f"topology-{graph}-p95", f"{_NAMES[graph]}: 95th percentile of a read's time, by mode", "", "P95 [ms]",
        tuple(_bars(at_base, measured, p95_ms)), PlotKind.BARS,
        "Without grace the 95th percentile falls off a cliff once fewer than one read in twenty waits for a load. "
        "With workers no read waits, whatever the mode. Bars: median over the seeds; lines: smallest and largest.",
        y_log=True,
    )  # fmt: skip
    yield Plot(
        f"topology-{graph}-throughput", f"{_NAMES[graph]}: reads a second, by mode", "", "reads a second",
        tuple(_bars(at_base, measured, reads_per_second)), PlotKind.BARS,
        "A closed loop reads more when fewer of its clients wait; an open loop reads what it is given.",
    )  # fmt: skip
    for setting in Setting:
        series = tuple(_beta_series(setting, beta_point(graph, options.extent), measured))
        if len(series) > 1 and len(series[-1].x) > 1:
            yield _beta_plot(graph, setting, series)
    yield Plot(
        f"topology-{graph}-leads", f"{_NAMES[graph]}: how early refreshes were asked for", "degree of the key's person",
        "before the soft expiry [ms]", tuple(_lead_series(outcomes)), PlotKind.LINES,
        "Medians, and the middle half about them. What is plain grows with how often a key is read, too: hubs are "
        "read more, so one of their many reads draws a long lead.",
        x_log=True,
    )  # fmt: skip


def _bars(at: Sequence[Point], measured: Table, metric: Metric) -> Iterator[Series]:
    for mode in MODES:
        spreads = {
            f"{setting}\n{point.load}": measured[point, Contestant(setting, mode, BASE_BETA)].spread(metric)
            for setting in Setting
            for point in at
        }
        spreads = {name: spread for name, spread in spreads.items() if not math.isnan(spread.median)}
        yield Series(
            mode.value, tuple(spreads), tuple(spread.median for spread in spreads.values()),
            tuple(spread.low for spread in spreads.values()), tuple(spread.high for spread in spreads.values()),
        )  # fmt: skip


def _beta_series(setting: Setting, point: Point, measured: Table) -> Iterator[Series]:
    share = waited_percent if setting is Setting.OWN_PROCESS else stale_percent
    for mode in MODES:
        found = [
            several
            for (where, who), several in sorted(measured.items(), key=lambda item: item[0][1].beta0)
            if where == point and who.setting is setting and who.mode is mode
        ]
        places = [(several.mean(recomputes_per_second), several.mean(share)) for several in found]
        places = [(x, y) for x, y in places if not math.isnan(y)]
        yield Series(mode.value, tuple(x for x, _ in places), tuple(y for _, y in places))


def _beta_plot(graph: GraphKind, setting: Setting, series: tuple[Series, ...]) -> Plot:
    is_own = setting is Setting.OWN_PROCESS
    share = "reads that waited" if is_own else "reads served after the soft expiry"
    return Plot(
        f"topology-{graph}-beta-{'own-process' if is_own else 'workers'}",
        f"{_NAMES[graph]}, refreshed by {'the own process' if is_own else 'workers'}: {share}, against recomputes",
        "recomputes a second", f"{share} [%]", series, PlotKind.LINES,
        "Each line is one mode, from its smallest β0 to its largest. The line below is better at the same load of the "
        "graph: a mode that is only earlier moves along the line of the other. Means over the seeds.",
    )  # fmt: skip


def _lead_series(outcomes: Sequence[Outcome]) -> Iterator[Series]:
    for setting in Setting:
        for mode in (Mode.PLAIN, Mode.TOPOLOGY):
            found = leads_ms(outcomes, setting, mode)
            buckets = {bucket: leads for bucket, leads in found.items() if len(leads) >= _MIN_LEADS}
            yield Series(
                f"{mode}, {setting}", tuple(1.5 * 2.0**bucket for bucket in buckets),
                tuple(percentile(leads, 50) for leads in buckets.values()),
                tuple(percentile(leads, 25) for leads in buckets.values()),
                tuple(percentile(leads, 75) for leads in buckets.values()),
            )  # fmt: skip
