"""Result of one graph: the grid, the ratios beside the published ones, and other β0."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from benchmarks.apparatus.statistics import median
from benchmarks.reports.charts import plain
from benchmarks.reports.results import Figure, Must, Result, Table, Target, figure
from benchmarks.topology.plan import TITLES, Candidate, Extent, GraphKind, Mode, Point, Setting
from benchmarks.topology.trial import Outcome

PUBLISHED: Final = {"reads_per_second": ("throughput", 1.20), "p95_ms": ("p95", 0.70)}
"""Published ratios of topology_sensitive to plain in the first setting: 305 against 255 queries per second,
and a P95 of 9.4 against 13.5 ms."""
_WHERE: Final = ("ttl_s", "pause_ms", "load", "drawn")


@dataclass(frozen=True, slots=True)
class Measured:
    """The outcomes of one candidate at one point, by seed."""

    outcomes: tuple[Outcome, ...]

    def values(self, metric: str) -> list[float]:
        """Return a metric of each outcome that has it."""
        found = [float(getattr(outcome, metric)) for outcome in self.outcomes]
        return [value for value in found if not math.isnan(value)]

    def ratios(self, other: Measured, metric: str) -> list[float]:
        """Return this metric as a multiple of the other's, seed by seed, where both exist.

        A trial in which no read began, because all clients waited throughout, has no percentile and no share.
        """
        theirs = {outcome.trial.seed: getattr(outcome, metric) for outcome in other.outcomes}
        pairs = [(getattr(outcome, metric), theirs.get(outcome.trial.seed, 0.0)) for outcome in self.outcomes]
        return [mine / other for mine, other in pairs if other > 0 and math.isfinite(mine)]


def _spread(values: Sequence[float]) -> str:
    """Return the median with the smallest and the largest value."""
    if not values:
        return "–"
    low, high = plain(min(values)), plain(max(values))
    return low if low == high else f"{plain(median(values))} ({low}–{high})"


def result_of(graph: GraphKind, outcomes: Sequence[Outcome], extent: Extent) -> Result:
    """Return the result of one graph."""
    own = [outcome for outcome in outcomes if outcome.trial.point.graph is graph]
    measured: dict[tuple[Point, Candidate], list[Outcome]] = defaultdict(list)
    for outcome in sorted(own, key=attrgetter("trial.seed")):
        measured[outcome.trial.point, outcome.trial.candidate].append(outcome)
    by_candidate = {key: Measured(tuple(several)) for key, several in measured.items()}
    return _OfGraph(graph, extent, extent.points(graph), by_candidate, own).result()


@dataclass(frozen=True, slots=True)
class _OfGraph:
    """Results of one graph: its points, and the outcomes there."""

    graph: GraphKind
    extent: Extent
    points: Sequence[Point]
    measured: dict[tuple[Point, Candidate], Measured]
    own: Sequence[Outcome]

    def result(self) -> Result:
        tables = [*map(self._grid, Setting), self._ratios()]
        if self.graph in self.extent.graphs_with_grid:
            tables.append(self._betas())
        return Result(f"topology-{self.graph}", TITLES[self.graph], list(self._figures()), tables=tables)

    def _title(self, what: str) -> str:
        """Return a table's title; the true median is missed only if all seeds are above it, or all below."""
        seeds = self.extent.seeds
        sure = f"; median of {seeds} seeds (smallest–largest, {1 - 2 * 0.5**seeds:.0%} sure)" if seeds > 1 else ""
        return f"{TITLES[self.graph]}{what}{sure}"

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
                *point.cells, mode.value, *(_spread(found.values(metric)) for _, metric in with_spread),
                *(plain(median(found.values(metric))) for _, metric in medians),
            )
            for point in self.points
            for mode in Mode
            for found in [self._at(point, setting, mode)]
        ]  # fmt: skip
        columns = (*_WHERE, "mode", *(name for name, _ in (*with_spread, *medians)))
        return Table(self._title(f"; refreshed by {'the own process' if is_own else 'workers'}"), columns, rows)

    def _ratios(self) -> Table:
        columns = (*_WHERE, "refreshed_by", "reads_per_s", "p95", "recomputes", "waited_or_stale")
        rows = [
            (*point.cells, setting.value, *(_spread(topology.ratios(unlike, metric)) for metric in metrics))
            for point in self.points
            for setting in Setting
            for topology, unlike in [[self._at(point, setting, mode) for mode in (Mode.TOPOLOGY, Mode.PLAIN)]]
            for metrics in [(*PUBLISHED, "recomputes_per_second", _share(setting))]
        ]  # fmt: skip
        return Table(self._title(": topology as × plain, β0 = 1 both"), columns, rows)

    def _betas(self) -> Table:
        point = self.extent.beta_point(self.graph)
        metrics = ("reads_per_second", "p95_ms", "waited_percent", "stale_percent", "recomputes_per_second")
        rows = [
            (
                who.setting.value, who.mode.value, None if who.mode is Mode.NO_EARLY else who.beta0,
                *(_spread(several.values(metric)) for metric in metrics),
            )
            for setting in Setting
            for mode in Mode
            for who, several in self._by_beta(setting, mode)
        ]  # fmt: skip
        columns = ("refreshed_by", "mode", "β0", "reads_per_s", "p95_ms", "waited_%", "stale_%", "recomputes_per_s")
        return Table(f"{TITLES[self.graph]}: other β0; {point}", columns, rows)

    def _by_beta(self, setting: Setting, mode: Mode) -> list[tuple[Candidate, Measured]]:
        """Return the measurements at the point where β is varied, by increasing β0."""
        point = self.extent.beta_point(self.graph)
        found = [(who, several) for (where, who), several in self.measured.items() if where == point]
        alike = [(who, several) for who, several in found if (who.setting, who.mode) == (setting, mode)]
        return sorted(alike, key=lambda pair: pair[0].beta0)

    def _figures(self) -> Iterator[Figure]:
        point = self.extent.base(self.graph)
        for setting in Setting:
            topology = self._at(point, setting, Mode.TOPOLOGY)
            for mode in (Mode.PLAIN, Mode.NO_EARLY):
                other, what = self._at(point, setting, mode), f"{setting}, base: topology against {mode}"
                for metric, (name, published) in PUBLISHED.items():
                    note = f"published for the own process: {published:.2f}" if mode is Mode.PLAIN else ""
                    yield figure(f"{what}, {name}", topology.ratios(other, metric), note=note)
                yield figure(f"{what}, recomputes", topology.ratios(other, "recomputes_per_second"))
        none, own = Target(Must.BE, 0), self.own
        by_workers = [each for each in own if each.trial.candidate.setting is Setting.WORKERS and each.times_ms]
        waited = tuple(each.waited_percent / 100 for each in by_workers)
        yield figure("workers: share of reads that waited, in the worst cell", waited, "", none, is_worst=True)
        failed = tuple(float(sum(each.failures.values())) for each in own)
        kinds = ", ".join(sorted({name for each in own for name in each.failures}))
        yield figure("errors, in the worst cell", failed, "", none, kinds, is_worst=True)


def _share(setting: Setting) -> str:
    return "waited_percent" if setting is Setting.OWN_PROCESS else "stale_percent"
