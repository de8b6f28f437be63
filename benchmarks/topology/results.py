"""Results of a run, one per graph: the grid, the ratios beside the published ones, β, lead times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks.reports.results import Figure, Must, Result, Table, TableCell, Target, figure
from benchmarks.topology.charts import charts_of, lead_times_table
from benchmarks.topology.options import TopologyOptions
from benchmarks.topology.plan import (
    BASE_BETA,
    MODES,
    Candidate,
    GraphKind,
    Mode,
    Point,
    Setting,
    base,
    beta_point,
    points,
)
from benchmarks.topology.spread import (
    Measured,
    Measurements,
    Metric,
    by_candidate,
    compact,
    confidence,
    origin_busy,
    p50_ms,
    p95_ms,
    p99_ms,
    reads_per_second,
    recomputes_per_second,
    spread_of,
    stale_percent,
    waited_percent,
)
from benchmarks.topology.trial import Outcome

PUBLISHED_THROUGHPUT: Final = 1.20
PUBLISHED_P95: Final = 0.70
"""Figures of the first setting's authors, topology_sensitive against plain: 255 to 305 queries a second, and a
P95 of 13.5 to 9.4 ms."""

TITLES: Final = {GraphKind.RMAT: "R-MAT: hubs and leaves", GraphKind.SNB: "social network, LDBC's degrees"}
_WHERE: Final = ("ttl_s", "pause_ms", "load", "drawn")


def results_of(outcomes: Sequence[Outcome], options: TopologyOptions) -> list[Result]:
    """Return a result for each graph."""
    measured = by_candidate(outcomes)
    results = []
    for graph in GraphKind:
        own = [outcome for outcome in outcomes if outcome.trial.point.graph is graph]
        here = [point for point in points(options.extent) if point.graph is graph]
        tables = [_grid(graph, setting, here, measured, options) for setting in Setting]
        tables.append(_ratios(graph, here, measured, options))
        tables += _betas(graph, measured, options)
        tables.append(lead_times_table(own))
        charts = charts_of(graph, own, measured, options) if graph in options.extent.graphs_with_grid else ()
        figures = list(_figures(graph, here, own, measured, options))
        results.append(Result(f"topology-{graph}", TITLES[graph], figures, tables=tables, charts=list(charts)))
    return results


def _grid(
    graph: GraphKind, setting: Setting, here: Sequence[Point], measured: Measurements, options: TopologyOptions
) -> Table:
    share = ("waited_%", waited_percent) if setting is Setting.OWN_PROCESS else ("stale_%", stale_percent)
    with_spread: tuple[tuple[str, Metric], ...] = (
        ("reads_per_s", reads_per_second), ("p95_ms", p95_ms), share, ("recomputes_per_s", recomputes_per_second),
    )  # fmt: skip
    medians: tuple[tuple[str, Metric], ...] = (("p50_ms", p50_ms), ("p99_ms", p99_ms), ("graph_busy", origin_busy))
    rows = [
        (
            *_where(point), mode.value, *(str(found.spread(metric)) for _, metric in with_spread),
            *(compact(found.spread(metric).median) for _, metric in medians),
        )
        for point in here
        for mode in MODES
        if (found := measured.get((point, Candidate(setting, mode, BASE_BETA))))
    ]  # fmt: skip
    title = f"{TITLES[graph]}; refreshed by {'the own process' if setting is Setting.OWN_PROCESS else 'workers'}"
    title += _confidence_note(options.extent.seeds)
    columns = (*_WHERE, "mode", *(name for name, _ in (*with_spread, *medians)))
    return Table(title, columns, rows)


def _confidence_note(seeds: int) -> str:
    if seeds == 1:
        return ""
    return f"; median of {seeds} seeds (smallest–largest, {confidence(seeds):.0%} sure)"


def _ratios(graph: GraphKind, here: Sequence[Point], measured: Measurements, options: TopologyOptions) -> Table:
    columns = (
        *_WHERE, "refreshed_by", "reads_per_s", f"≥_{PUBLISHED_THROUGHPUT:.2f}", "p95", f"≤_{PUBLISHED_P95:.2f}",
        "recomputes", "waited_or_stale",
    )  # fmt: skip
    rows = [
        (*_where(point), setting.value, *_ratio_cells(setting, topology, plain))
        for point in here
        for setting in Setting
        if (topology := measured.get((point, Candidate(setting, Mode.TOPOLOGY, BASE_BETA))))
        and (plain := measured.get((point, Candidate(setting, Mode.PLAIN, BASE_BETA))))
    ]
    title = f"{TITLES[graph]}: topology as × plain, β0 = 1 both{_confidence_note(options.extent.seeds)}"
    return Table(title, columns, rows)


def _ratio_cells(setting: Setting, topology: Measured, plain: Measured) -> tuple[TableCell, ...]:
    share = waited_percent if setting is Setting.OWN_PROCESS else stale_percent
    throughput, p95 = topology.ratios(plain, reads_per_second), topology.ratios(plain, p95_ms)
    return (
        str(spread_of(throughput)),
        _verdict([ratio >= PUBLISHED_THROUGHPUT for ratio in throughput]),
        str(spread_of(p95)),
        _verdict([ratio <= PUBLISHED_P95 for ratio in p95]),
        str(spread_of(topology.ratios(plain, recomputes_per_second))),
        str(spread_of(topology.ratios(plain, share))),
    )


def _verdict(reached: Sequence[bool]) -> str:
    """Say of how many seeds it is true."""
    if not reached:
        return "–"
    if all(reached):
        return "yes"
    return f"{sum(reached)} of {len(reached)}" if any(reached) else "no"


def _betas(graph: GraphKind, measured: Measurements, options: TopologyOptions) -> Iterator[Table]:
    point = beta_point(graph, options.extent)
    found = sorted(
        ((who, several) for (where, who), several in measured.items() if where == point),
        key=lambda pair: (list(Setting).index(pair[0].setting), MODES.index(pair[0].mode), pair[0].beta0),
    )
    if not any(who.beta0 != BASE_BETA for who, _ in found):
        return
    metrics = (reads_per_second, p95_ms, waited_percent, stale_percent, recomputes_per_second)
    rows = [
        (
            who.setting.value, who.mode.value, None if who.mode is Mode.NO_EARLY else who.beta0,
            *(str(several.spread(metric)) for metric in metrics),
        )
        for who, several in found
    ]  # fmt: skip
    columns = ("refreshed_by", "mode", "β0", "reads_per_s", "p95_ms", "waited_%", "stale_%", "recomputes_per_s")
    yield Table(f"{TITLES[graph]}: other β0; {described(point)}", columns, rows)


def _figures(
    graph: GraphKind, here: Sequence[Point], own: Sequence[Outcome], measured: Measurements, options: TopologyOptions
) -> Iterator[Figure]:
    point = base(graph, options.extent)
    for setting in Setting:
        topology = measured[point, Candidate(setting, Mode.TOPOLOGY, BASE_BETA)]
        for mode in (Mode.PLAIN, Mode.NO_EARLY):
            other = measured[point, Candidate(setting, mode, BASE_BETA)]
            what = f"{setting}, base: topology against {mode}"
            published = mode is Mode.PLAIN
            yield figure(
                f"{what}, throughput", topology.ratios(other, reads_per_second),
                note=f"published for the own process: {PUBLISHED_THROUGHPUT:.2f}" if published else "",
            )  # fmt: skip
            yield figure(
                f"{what}, p95", topology.ratios(other, p95_ms),
                note=f"published for the own process: {PUBLISHED_P95:.2f}" if published else "",
            )  # fmt: skip
            yield figure(f"{what}, recomputes", topology.ratios(other, recomputes_per_second))
        yield from _points_reached(setting, here, measured)
    by_workers = [each for each in own if each.trial.candidate.setting is Setting.WORKERS]
    waited = tuple(each.waited for each in by_workers if each.times_ms)
    none = Target(Must.BE, 0)
    yield figure("workers: share of reads that waited, in the worst cell", waited, "", none, is_worst=True)
    failed = tuple(float(sum(each.failures.values())) for each in own)
    kinds = ", ".join(sorted({name for each in own for name in each.failures}))
    yield figure("errors, in the worst cell", failed, "", none, kinds, is_worst=True)


def _points_reached(
    setting: Setting, here: Sequence[Point], measured: Measurements
) -> Iterator[Figure]:  # fmt: skip
    """Yield at how many points of the grid the published ratios come out, in the median."""
    pairs = [
        (measured[point, Candidate(setting, Mode.TOPOLOGY, BASE_BETA)],
         measured[point, Candidate(setting, Mode.PLAIN, BASE_BETA)])
        for point in here
    ]  # fmt: skip
    if len(pairs) < 2:
        return
    throughput = [spread_of(mine.ratios(other, reads_per_second)).median for mine, other in pairs]
    p95 = [spread_of(mine.ratios(other, p95_ms)).median for mine, other in pairs]
    for what, reached in (
        (f"throughput ≥ {PUBLISHED_THROUGHPUT:.2f} ×", [ratio >= PUBLISHED_THROUGHPUT for ratio in throughput]),
        (f"p95 ≤ {PUBLISHED_P95:.2f} ×", [ratio <= PUBLISHED_P95 for ratio in p95]),
    ):
        what_of = f"{setting}, topology against plain: points of the grid with {what}"
        yield figure(what_of, (float(sum(reached)),), "", note=f"of {len(reached)} points")


def _where(point: Point) -> tuple[TableCell, ...]:
    return f"{point.ttl_seconds:g}", f"{point.pause_seconds * 1000:g}", str(point.load), point.skew.value


def described(point: Point) -> str:
    """Say in words which point it is."""
    pause = f"an added pause of {point.pause_seconds * 1000:g} ms" if point.pause_seconds else "no added pause"
    return f"TTL {point.ttl_seconds:g} s, {pause}, {point.load}, keys drawn {point.skew}"
