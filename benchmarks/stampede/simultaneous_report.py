"""Tables, figures and chart of simultaneous reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from benchmarks.apparatus.statistics import median
from benchmarks.reports.charts import Plot, bars
from benchmarks.reports.results import Figure, Must, Result, Table, TableCell, Target
from benchmarks.stampede.config import Scale, Scenario
from benchmarks.stampede.simultaneous import Moment, SimultaneousRun
from benchmarks.stampede.steady_report import limits
from benchmarks.stampede.strategies.ours import Ours
from benchmarks.stampede.variants import Variant

_GROUP: Final = Scenario.HERD


def result_of(runs: Sequence[SimultaneousRun], variants: Sequence[Variant], scale: Scale) -> Result:
    """Put it together."""
    title = f"{scale.workers:,} readers at the same moment"
    shown = [variant for variant in variants if any(run.variant is variant for run in runs)]
    return Result(
        _GROUP, title, figures=tuple(_figures(runs, shown)),
        tables=(_counts(runs, shown, title), limits(_GROUP, shown)),
        plots=(_chart(runs, shown),) if runs else (),
    )  # fmt: skip


def _figures(runs: Sequence[SimultaneousRun], variants: Sequence[Variant]) -> Iterator[Figure]:
    for variant in variants:
        if variant.strategy is not Ours:
            continue
        for moment in Moment:
            found = _of(runs, variant, moment)
            recomputes = tuple(float(run.outcome.recomputes) for run in found)
            kinds = sum((run.outcome.errors for run in found), Counter[str]())
            note = ", ".join(f"{kind}: {times}" for kind, times in kinds.most_common(3))
            failed = tuple(float(run.outcome.errors.total()) for run in found)
            what = f"{variant.title}, {moment}"
            yield Figure(f"{what}: recomputes", recomputes, "", Target(Must.BE, 1), is_worst=True)
            yield Figure(f"{what}: errors", failed, "", Target(Must.BE, 0), note, is_worst=True)
        yield from _against(
            runs, variant, [other for other in variants if other.kind is variant.kind and other is not variant]
        )


def _against(runs: Sequence[SimultaneousRun], ours: Variant, others: Sequence[Variant]) -> Iterator[Figure]:
    """Compare with those that are read by the same kind of readers, round by round."""
    own = {run.round: run.outcome.percentile_ms(99) for run in _of(runs, ours, Moment.EXPIRY)}
    for other in others:
        ratios = tuple(
            run.outcome.percentile_ms(99) / own[run.round]
            for run in _of(runs, other, Moment.EXPIRY)
            if run.round in own
        )
        what = f"{Moment.EXPIRY}: p99 of {other.title}, against {ours.title}"
        target = Target(Must.MORE_THAN, 1) if other.strategy.is_peer else None
        yield Figure(what, ratios, "×", target)


def _of(runs: Sequence[SimultaneousRun], variant: Variant, moment: Moment) -> list[SimultaneousRun]:
    return [run for run in runs if run.variant is variant and run.moment is moment]


def _counts(runs: Sequence[SimultaneousRun], variants: Sequence[Variant], title: str) -> Table:
    columns = (
        "moment", "strategy", "read_by", "reads", "recomputes", "at_once", "errors", "p50_ms", "p99_ms", "max_ms",
        "p99_from_start_ms",
    )  # fmt: skip
    rows: list[tuple[TableCell, ...]] = []
    for moment in Moment:
        for variant in variants:
            found = [(run, run.outcome) for run in _of(runs, variant, moment)]
            rows.append((
                str(moment), variant.title, str(variant.kind),
                max((len(outcome.reads) for _, outcome in found), default=0),
                max((outcome.recomputes for _, outcome in found), default=None),
                max((recompute.at_once for run, _ in found for recompute in run.recomputes), default=None),
                max((outcome.errors.total() for _, outcome in found), default=None),
                *(median([outcome.percentile_ms(percent) for _, outcome in found]) for percent in (50, 99, 100)),
                median([outcome.percentile_ms(99, from_start=True) for _, outcome in found]),
            ))  # fmt: skip
    return Table(f"{_GROUP}", f"{title}; counts of the worst round, times of the median", columns, tuple(rows))


def _chart(runs: Sequence[SimultaneousRun], variants: Sequence[Variant]) -> Plot:
    p99s = {
        variant.title: [run.outcome.percentile_ms(99) for run in _of(runs, variant, Moment.EXPIRY)]
        for variant in variants
    }
    ours = tuple(variant.title for variant in variants if variant.strategy is Ours)
    title = f"99th percentile of the reads, {Moment.EXPIRY}"
    plot = bars(f"{_GROUP}-p99", title, "p99 (ms)", {"p99": p99s}, ours=ours)
    return replace(plot, caption=f"{plot.caption} Threads and tasks wait for different things: compare within a kind.")
