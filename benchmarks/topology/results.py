"""Result of one graph: the grid, the ratios beside the published ones, β, lead times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.reports.results import Figure, Must, Result, Table, TableCell, Target, figure
from benchmarks.topology.charts import charts_of, lead_times_table
from benchmarks.topology.plan import BASE_BETA, Candidate, Extent, GraphKind, Mode, Point, Setting
from benchmarks.topology.spread import Measured, Measurements, Metric, by_candidate, compact, spread_of
from benchmarks.topology.trial import Outcome

PUBLISHED_THROUGHPUT: Final = 1.20
PUBLISHED_P95: Final = 0.70
"""Figures of the first setting's authors, topology_sensitive against plain: 255 to 305 queries a second, and a
P95 of 13.5 to 9.4 ms."""
_TITLES: Final = {GraphKind.RMAT: "R-MAT: hubs and leaves", GraphKind.SNB: "social network, LDBC's degrees"}
_WHERE: Final = ("ttl_s", "pause_ms", "load", "drawn")


def result_of(graph: GraphKind, outcomes: Sequence[Outcome], extent: Extent) -> Result:
    """Return the result of one graph."""
    own = [outcome for outcome in outcomes if outcome.trial.point.graph is graph]
    return _OfGraph(graph, extent, extent.points(graph), by_candidate(own), own).result()


@dataclass(frozen=True, slots=True)
class _OfGraph:
    """Results of one graph: its points, and the outcomes there."""

    graph: GraphKind
    extent: Extent
    points: Sequence[Point]
    measured: Measurements
    own: Sequence[Outcome]

    def result(self) -> Result:
        tables = [*map(self._grid, Setting), self._ratios(), *self._betas(), lead_times_table(self.own)]
        has_charts = self.graph in self.extent.graphs_with_grid
        charts = charts_of(self.graph, self.own, self.measured, self.extent) if has_charts else ()
        title = _TITLES[self.graph]
        return Result(f"topology-{self.graph}", title, list(self._figures()), tables=tables, charts=list(charts))

    def _title(self, what: str) -> str:
        """Return a table's title; the true median is missed only when all seeds are above it, or all below."""
        seeds = self.extent.seeds
        sure = f"; median of {seeds} seeds (smallest–largest, {1 - 2 * 0.5**seeds:.0%} sure)" if seeds > 1 else ""
        return f"{_TITLES[self.graph]}{what}{sure}"

    def _at(self, point: Point, setting: Setting, mode: Mode) -> Measured:
        return self.measured[point, Candidate(setting, mode)]

    def _grid(self, setting: Setting) -> Table:
        is_own = setting is Setting.OWN_PROCESS
        with_spread = (
            ("reads_per_s", "reads_per_second"), ("p95_ms", "p95_ms"),
            ("waited_%" if is_own else "stale_%", _share(setting)), ("recomputes_per_s", "recomputes_per_second"),
        )  # fmt: skip
        medians = (("p50_ms", "p50_ms"), ("p99_ms", "p99_ms"), ("graph_busy", "origin_busy"))
        rows = [
            (
                *point.cells, mode.value, *(str(found.spread(metric)) for _, metric in with_spread),
                *(compact(found.spread(metric).median) for _, metric in medians),
            )
            for point in self.points
            for mode in Mode
            for found in [self._at(point, setting, mode)]
        ]  # fmt: skip
        columns = (*_WHERE, "mode", *(name for name, _ in (*with_spread, *medians)))
        return Table(self._title(f"; refreshed by {'the own process' if is_own else 'workers'}"), columns, rows)

    def _ratios(self) -> Table:
        columns = (
            *_WHERE, "refreshed_by", "reads_per_s", f"≥_{PUBLISHED_THROUGHPUT:.2f}", "p95", f"≤_{PUBLISHED_P95:.2f}",
            "recomputes", "waited_or_stale",
        )  # fmt: skip
        rows = [
            (*point.cells, setting.value, *self._ratio_cells(point, setting))
            for point in self.points
            for setting in Setting
        ]
        return Table(self._title(": topology as × plain, β0 = 1 both"), columns, rows)

    def _ratio_cells(self, point: Point, setting: Setting) -> tuple[TableCell, ...]:
        topology, plain = (self._at(point, setting, mode) for mode in (Mode.TOPOLOGY, Mode.PLAIN))
        throughput, p95 = topology.ratios(plain, "reads_per_second"), topology.ratios(plain, "p95_ms")
        return (
            str(spread_of(throughput)),
            _verdict([ratio >= PUBLISHED_THROUGHPUT for ratio in throughput]),
            str(spread_of(p95)),
            _verdict([ratio <= PUBLISHED_P95 for ratio in p95]),
            str(spread_of(topology.ratios(plain, "recomputes_per_second"))),
            str(spread_of(topology.ratios(plain, _share(setting)))),
        )

    def _betas(self) -> Iterator[Table]:
        point = self.extent.beta_point(self.graph)
        found = sorted(
            ((who, several) for (where, who), several in self.measured.items() if where == point),
            key=lambda pair: (list(Setting).index(pair[0].setting), list(Mode).index(pair[0].mode), pair[0].beta0),
        )
        if not any(who.beta0 != BASE_BETA for who, _ in found):
            return
        metrics = ("reads_per_second", "p95_ms", "waited_percent", "stale_percent", "recomputes_per_second")
        rows = [
            (
                who.setting.value, who.mode.value, None if who.mode is Mode.NO_EARLY else who.beta0,
                *(str(several.spread(metric)) for metric in metrics),
            )
            for who, several in found
        ]  # fmt: skip
        columns = ("refreshed_by", "mode", "β0", "reads_per_s", "p95_ms", "waited_%", "stale_%", "recomputes_per_s")
        yield Table(f"{_TITLES[self.graph]}: other β0; {point}", columns, rows)

    def _figures(self) -> Iterator[Figure]:
        point = self.extent.base(self.graph)
        for setting in Setting:
            topology = self._at(point, setting, Mode.TOPOLOGY)
            for mode in (Mode.PLAIN, Mode.NO_EARLY):
                other, what = self._at(point, setting, mode), f"{setting}, base: topology against {mode}"
                for metric, name, published in (
                    ("reads_per_second", "throughput", PUBLISHED_THROUGHPUT),
                    ("p95_ms", "p95", PUBLISHED_P95),
                ):
                    note = f"published for the own process: {published:.2f}" if mode is Mode.PLAIN else ""
                    yield figure(f"{what}, {name}", topology.ratios(other, metric), note=note)
                yield figure(f"{what}, recomputes", topology.ratios(other, "recomputes_per_second"))
            yield from self._points_reached(setting)
        none, own = Target(Must.BE, 0), self.own
        by_workers = [each for each in own if each.trial.candidate.setting is Setting.WORKERS and each.times_ms]
        waited = tuple(each.waited_percent / 100 for each in by_workers)
        yield figure("workers: share of reads that waited, in the worst cell", waited, "", none, is_worst=True)
        failed = tuple(float(sum(each.failures.values())) for each in own)
        kinds = ", ".join(sorted({name for each in own for name in each.failures}))
        yield figure("errors, in the worst cell", failed, "", none, kinds, is_worst=True)

    def _points_reached(self, setting: Setting) -> Iterator[Figure]:
        """Yield at how many points of the grid the published ratios come out, in the median."""
        pairs = [tuple(self._at(one, setting, mode) for mode in (Mode.TOPOLOGY, Mode.PLAIN)) for one in self.points]
        if len(pairs) < 2:
            return
        throughput = [spread_of(mine.ratios(other, "reads_per_second")).median for mine, other in pairs]
        p95 = [spread_of(mine.ratios(other, "p95_ms")).median for mine, other in pairs]
        for what, reached in (
            (f"throughput ≥ {PUBLISHED_THROUGHPUT:.2f} ×", [ratio >= PUBLISHED_THROUGHPUT for ratio in throughput]),
            (f"p95 ≤ {PUBLISHED_P95:.2f} ×", [ratio <= PUBLISHED_P95 for ratio in p95]),
        ):
            what_of = f"{setting}, topology against plain: points of the grid with {what}"
            yield figure(what_of, (float(sum(reached)),), "", note=f"of {len(reached)} points")


def _share(setting: Setting) -> Metric:
    return "waited_percent" if setting is Setting.OWN_PROCESS else "stale_percent"


def _verdict(reached: Sequence[bool]) -> str:
    """Say of how many seeds it is true."""
    if not reached:
        return "–"
    if all(reached):
        return "yes"
    return f"{sum(reached)} of {len(reached)}" if any(reached) else "no"
