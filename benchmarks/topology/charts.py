"""Charts of a run, and the table of lead times by degree."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from benchmarks.apparatus.statistics import percentile
from benchmarks.reports.charts import Plot, PlotKind, Series
from benchmarks.reports.results import Table
from benchmarks.topology.plan import BASE_PAUSE_SECONDS, Candidate, Extent, GraphKind, Mode, Point, Setting
from benchmarks.topology.spread import Measurements
from benchmarks.topology.trial import Outcome

NAMES: Final = {GraphKind.RMAT: "R-MAT", GraphKind.SNB: "social network"}
_MIN_LEADS: Final = 5
_EARLY: Final = (Mode.PLAIN, Mode.TOPOLOGY)


def lead_times_ms(outcomes: Iterable[Outcome], setting: Setting, mode: Mode) -> dict[int, list[float]]:
    """Return lead times by bucket of degrees: bucket b holds degrees from 2**b to 2**(b+1) - 1.

    Of the trials with the usual β0 and an added pause, so that δ is about the same in all of them.
    """
    found: dict[int, list[float]] = defaultdict(list)
    for outcome in outcomes:
        trial = outcome.trial
        if trial.candidate == Candidate(setting, mode) and trial.point.pause_seconds == BASE_PAUSE_SECONDS:
            for lead in outcome.lead_times:
                found[max(lead.degree, 1).bit_length() - 1].append(lead.seconds * 1000)
    return dict(sorted(found.items()))


def lead_times_table(outcomes: Sequence[Outcome]) -> Table:
    """Return the table: for each degree when early refreshes began, in both settings."""
    rows = [
        (
            setting.value, mode.value, _degrees(bucket), len(lead_times),
            *(percentile(lead_times, percent) for percent in (10, 50, 90)),
        )
        for setting in Setting
        for mode in _EARLY
        for bucket, lead_times in lead_times_ms(outcomes, setting, mode).items()
    ]  # fmt: skip
    columns = ("refreshed_by", "mode", "degree", "early_refreshes", "p10_ms", "p50_ms", "p90_ms")
    title = "how long before the soft expiry early refreshes were triggered, β0 = 1, δ about 50 ms"
    return Table(title, columns, rows)


def _degrees(bucket: int) -> str:
    low, high = 2**bucket, 2 ** (bucket + 1) - 1
    return str(low) if low == high else f"{low}–{high}"


def charts_of(
    graph: GraphKind, outcomes: Sequence[Outcome], measured: Measurements, extent: Extent
) -> Iterator[Plot]:  # fmt: skip
    """Yield the charts of one graph."""
    at_base = [replace(extent.base(graph), rate=rate) for rate in extent.rates]
    yield Plot(
        f"topology-{graph}-p95", f"{NAMES[graph]}: 95th percentile of a read's time, by mode", "", "p95 (ms)",
        tuple(_bars(at_base, measured)), PlotKind.BARS,
        "Without grace the 95th percentile falls off a cliff once fewer than one read in twenty waits for a load. "
        "With workers no read waits, whatever the mode. Bars: median over the seeds; lines: smallest and largest.",
        ours=(Mode.TOPOLOGY.value,),
    )  # fmt: skip
    for setting in Setting:
        series = tuple(_beta_series(setting, extent.beta_point(graph), measured))
        if len(series[-1].x) > 1:
            yield _beta_plot(graph, setting, series)
    yield Plot(
        f"topology-{graph}-leads", f"{NAMES[graph]}: how early refreshes were triggered", "degree of the key's person",
        "before the soft expiry (ms)", tuple(_lead_time_series(outcomes)), PlotKind.LINES,
        "Medians, and the middle half about them. What is plain grows with how often a key is read, too: hubs are "
        "read more, so one of their many reads draws a long lead.",
        tuple(f"{Mode.TOPOLOGY}, {setting}" for setting in (Setting.WORKERS, Setting.OWN_PROCESS)), x_log=True,
    )  # fmt: skip


def _bars(at: Sequence[Point], measured: Measurements) -> Iterator[Series]:
    for mode in Mode:
        spreads = {
            f"{setting}\n{point.load}": measured[point, Candidate(setting, mode)].spread("p95_ms")
            for setting in Setting
            for point in at
        }
        spreads = {name: spread for name, spread in spreads.items() if not math.isnan(spread.median)}
        yield Series(
            mode.value, tuple(spreads), *(tuple(spread[part] for spread in spreads.values()) for part in range(3))
        )  # fmt: skip


def _beta_series(setting: Setting, point: Point, measured: Measurements) -> Iterator[Series]:
    share = "waited_percent" if setting is Setting.OWN_PROCESS else "stale_percent"
    for mode in Mode:
        found = [
            several
            for (where, who), several in sorted(measured.items(), key=lambda item: item[0][1].beta0)
            if where == point and who.setting is setting and who.mode is mode
        ]
        places = [(several.mean("recomputes_per_second"), several.mean(share)) for several in found]
        places = [(x, y) for x, y in places if not math.isnan(y)]
        yield Series(mode.value, tuple(x for x, _ in places), tuple(y for _, y in places))


def _beta_plot(graph: GraphKind, setting: Setting, series: tuple[Series, ...]) -> Plot:
    is_own = setting is Setting.OWN_PROCESS
    share = "reads that waited" if is_own else "reads served after the soft expiry"
    return Plot(
        f"topology-{graph}-beta-{'own-process' if is_own else 'workers'}",
        f"{NAMES[graph]}, refreshed by {'the own process' if is_own else 'workers'}: {share}, against recomputes",
        "recomputes/s", f"{share} (%)", series, PlotKind.LINES,
        "Each line is one mode, from its smallest β0 to its largest. The line below is better at the same load of the "
        "graph: a mode that is only earlier moves along the line of the other. Means over the seeds.",
        (Mode.TOPOLOGY.value,),
    )  # fmt: skip


def _lead_time_series(outcomes: Sequence[Outcome]) -> Iterator[Series]:
    for setting in Setting:
        for mode in _EARLY:
            found = lead_times_ms(outcomes, setting, mode)
            buckets = {bucket: lead_times for bucket, lead_times in found.items() if len(lead_times) >= _MIN_LEADS}
            yield Series(
                f"{mode}, {setting}", tuple(1.5 * 2.0**bucket for bucket in buckets),
                *(
                    tuple(percentile(lead_times, percent) for lead_times in buckets.values())
                    for percent in (50, 25, 75)
                ),
            )  # fmt: skip
