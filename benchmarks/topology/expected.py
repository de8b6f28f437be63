"""Both modes at equal loads, computed: the cost of early refreshes, and the reads that still come late.

No run can tell small differences from chance, and the two modes load differently at the same β0. So the expectation is
computed for each key by itself, with Poisson reads, a TTL and a δ, and summed over the keys of a graph. A read is late
if it begins after the soft expiry and before the end of the refresh: with workers and grace it gets a stale value, in
the reader's own process it waits. So one figure serves both settings.

Normalising β0, so that a mode's total load equals that of plain, only moves along that mode's line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.reports.charts import Plot, Series
from benchmarks.reports.results import Result, Table, TableCell
from benchmarks.topology.graphs import GraphModel
from benchmarks.topology.plan import TITLES, GraphKind, Mode, Skew

Floats: TypeAlias = NDArray[np.float64]

_TTL_SECONDS: Final = 60.0
_DELTA_SECONDS: Final = 0.2
_READS_IN_DELTA: Final = (0.01, 0.1, 1.0)
"""Mean numbers of reads of a key in δ, which determine how early a refresh is drawn."""
_BETAS: Final = tuple(2.0**power for power in range(-6, 13))
_MORE_LOADS: Final = (0.01, 0.02, 0.05)
_STEPS: Final = 400
_CURVES: Final = (Mode.PLAIN, Mode.TOPOLOGY)


@dataclass(frozen=True, slots=True)
class Situation:
    """Rates of reads, and times of loads.

    Attributes:
        skew: reads by degree, or even.
        reads_in_delta: the mean number of reads of a key within δ.
        dear_hubs: True if a load's time is proportional to the degree, up to a quarter of the TTL; otherwise all are
            equal.
    """

    skew: Skew
    reads_in_delta: float
    dear_hubs: bool

    def __str__(self) -> str:
        return f"{self.skew}, {self.reads_in_delta:g} reads in δ{', hubs dearer' if self.dear_hubs else ''}"


SITUATIONS: Final = tuple(
    Situation(skew, reads, dear) for skew in Skew for dear in (False, True) for reads in _READS_IN_DELTA
)


def expected(rates: Floats, ttl_seconds: float, deltas: Floats, betas: Floats) -> tuple[Floats, Floats]:
    """Return loads and late reads per second of each key; all arguments and results are arrays (keys,).

    A read at s before the expiry refreshes with the probability exp(−s/(β·δ)) if s ≤ TTL/2, and after the expiry
    always. So the first read that refreshes is the first point of a Poisson process with that intensity.
    """
    left = np.linspace(ttl_seconds / 2, 0.0, _STEPS)
    step = left[0] - left[1]
    hazard = rates[:, None] * np.exp(-left / np.maximum(betas * deltas, 1e-12)[:, None])
    passed = np.cumsum((hazard[:, 1:] + hazard[:, :-1]) / 2 * step, axis=1)
    survives = np.exp(-np.concatenate([np.zeros((len(rates), 1)), passed], axis=1))
    density = survives[:, :-1] - survives[:, 1:]
    middle = (left[:-1] + left[1:]) / 2
    never_early = survives[:, -1]
    triggered_after = (density * (ttl_seconds - middle)).sum(axis=1) + never_early * (ttl_seconds + 1 / rates)
    late_after_early = rates * (density * np.maximum(0.0, deltas[:, None] - middle)).sum(axis=1)
    late = late_after_early + never_early * (1 + rates * deltas)
    cycles_per_second = 1 / (triggered_after + deltas)
    return cycles_per_second, late * cycles_per_second


@dataclass(frozen=True, slots=True)
class Curve:
    """One mode in one situation, by β0: the added load, relative to none early, and the share of late reads."""

    more_loads: Floats
    late_share: Floats

    def late_at(self, more_loads: float) -> float:
        """Return the share of late reads at this added load, interpolated between two β0; NaN beyond the largest."""
        if more_loads > self.more_loads[-1]:
            return math.nan
        return float(np.exp(np.interp(more_loads, self.more_loads, np.log(self.late_share))))


def curve(mode: Mode, degrees: Floats, situation: Situation) -> Curve:
    """Compute a mode's curve over β0, for one key of each of these degrees."""
    degrees, keys = np.unique(degrees, return_counts=True)
    of_mean, alike = degrees / np.average(degrees, weights=keys), np.ones_like(degrees)
    rates = situation.reads_in_delta / _DELTA_SECONDS * (of_mean if situation.skew is Skew.BY_DEGREE else alike)
    deltas = np.minimum(_DELTA_SECONDS * (of_mean if situation.dear_hubs else alike), _TTL_SECONDS / 4)
    factors = 1 + np.log(degrees) if mode is Mode.TOPOLOGY else alike
    points = [expected(rates, _TTL_SECONDS, deltas, beta0 * factors) for beta0 in (0.0, *_BETAS)]
    busy = np.array([(keys * loads * deltas).sum() for loads, _ in points])
    late = np.array([(keys * late).sum() / (keys * rates).sum() for _, late in points])
    return Curve(busy / busy[0] - 1, np.maximum(late, 1e-12))


def expected_result(model: GraphModel, seed: int) -> Result:
    """Return the table of all situations, and a chart for each graph."""
    rows: list[Sequence[TableCell]] = []
    charts: list[Plot] = []
    for kind in GraphKind:
        degrees = model.subgraphs[kind, seed].degrees
        known = degrees[degrees > 0].astype(np.float64)
        curves = {(mode, one): curve(mode, known, one) for one in SITUATIONS for mode in _CURVES}
        rows += [
            (kind.value, str(one), *_cells(curves[Mode.PLAIN, one], curves[Mode.TOPOLOGY, one])) for one in SITUATIONS
        ]
        charts.append(_plot(kind, curves))
    each = (f"{name}_+{at:.0%}" for at in _MORE_LOADS for name in ("plain_%", "×_of_plain"))
    title = "late reads at equal loads: plain, and topology as × of it; TTL 60 s, δ 0.2 s, computed"
    table = Table(title, ("graph", "keys", "no_early_%", *each), rows)
    return Result("topology-expected", "both modes at equal loads, computed", tables=[table], charts=charts)


def _cells(plain: Curve, topology: Curve) -> Iterator[TableCell]:
    yield 100 * float(plain.late_share[0])
    for more in _MORE_LOADS:
        late = plain.late_at(more)
        yield from (100 * late, topology.late_at(more) / late)


def _plot(kind: GraphKind, curves: dict[tuple[Mode, Situation], Curve]) -> Plot:
    series = []
    for mode in _CURVES:
        for reads in _READS_IN_DELTA[1:]:
            found = curves[mode, Situation(Skew.BY_DEGREE, reads, dear_hubs=False)]
            is_shown = (found.more_loads <= 0.2) & (found.more_loads > 0.001)
            x, y = 100 * found.more_loads[is_shown], 100 * found.late_share[is_shown]
            series.append(Series(f"{mode}, {reads:g} reads in δ", tuple(map(float, x)), tuple(map(float, y))))
    return Plot(
        f"topology-{kind}-expected", f"{TITLES[kind]}: late reads against additional loads, computed",
        "loads more than without early refresh (%)", "reads after the expiry (%)", tuple(series),
        caption="Along each line β0 doubles. The lower line is better at the same load of the graph.",
        ours=tuple(one.label for one in series if one.label.startswith(Mode.TOPOLOGY)), x_log=True, y_log=True,
    )  # fmt: skip
