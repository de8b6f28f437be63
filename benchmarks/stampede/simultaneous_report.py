"""Tables, figures and chart of simultaneous reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from benchmarks.apparatus.statistics import median
from benchmarks.reports.charts import Plot, bars
from benchmarks.reports.results import Figure, Must, Result, Table, TableCell, Target, figure
from benchmarks.stampede.config import Scale, Scenario
from benchmarks.stampede.herd import Outcome
from benchmarks.stampede.simultaneous import Moment, SimultaneousRun
from benchmarks.stampede.steady_report import limits
from benchmarks.stampede.strategies.ours import Ours
from benchmarks.stampede.variants import Variant

_GROUP: Final = Scenario.HERD
_COLUMNS: Final = (
    "moment", "strategy", "read_by", "reads", "recomputes", "at_once", "errors", "p50_ms", "p99_ms", "max_ms",
    "p99_from_start_ms",
)  # fmt: skip
_NONE: Final = Target(Must.BE, 0)
_ONE: Final = Target(Must.BE, 1)
_MAX_OF_FRESH: Final = Target(Must.AT_MOST, 1.2)


def result_of(runs: Sequence[SimultaneousRun], variants: Sequence[Variant], scale: Scale) -> Result:
    """Put it together."""
    title = f"{scale.workers:,} readers at the same moment"
    shown = [variant for variant in variants if any(run.variant is variant for run in runs)]
    return Result(
        _GROUP, title, list(_figures(runs, shown, scale)),
        tables=[_counts(runs, shown, title), limits(shown)], charts=[_chart(runs, shown)] if runs else [],
    )  # fmt: skip


def _figures(runs: Sequence[SimultaneousRun], variants: Sequence[Variant], scale: Scale) -> Iterator[Figure]:
    for variant in variants:
        if variant.strategy is not Ours:
            continue
        by_moment = {moment: _of(runs, variant, moment) for moment in Moment}
        for moment, outcomes in by_moment.items():
            kinds = sum((outcome.errors for outcome in outcomes), Counter[str]())
            note = ", ".join(f"{kind}: {times}" for kind, times in kinds.most_common(3))
            what = f"{variant.title}, {moment}"
            recomputes = [float(len(outcome.recomputes)) for outcome in outcomes]
            one = _NONE if moment is Moment.FRESH else _ONE
            yield figure(f"{what}: recomputes", recomputes, "", one, is_worst=True)
            failed = [float(outcome.errors.total()) for outcome in outcomes]
            yield figure(f"{what}: errors", failed, "", _NONE, note, is_worst=True)
        yield from _against_fresh(variant.title, {key: _p99s(found) for key, found in by_moment.items()}, scale)
        for other in variants:
            if other.kind is variant.kind and other is not variant:
                ratios = _ratios(_p99s(_of(runs, other, Moment.EXPIRY)), _p99s(by_moment[Moment.EXPIRY]))
                target = Target(Must.MORE_THAN, 1) if other.strategy.is_peer else None
                yield figure(f"{Moment.EXPIRY}: p99 of {other.title}, against {variant.title}", ratios, target=target)


def _against_fresh(title: str, p99s: dict[Moment, list[float]], scale: Scale) -> Iterator[Figure]:
    """Compare with the same herd on a fresh key: what the threads and tasks alone take."""
    fresh, load_ms = p99s[Moment.FRESH], scale.delta * 1000
    yield figure(
        f"{title}, {Moment.EXPIRY}: p99 against a fresh key", _ratios(p99s[Moment.EXPIRY], fresh), target=_MAX_OF_FRESH
    )
    yield figure(
        f"{title}, {Moment.COLD}: p99, of which the load takes {load_ms:g} ms", p99s[Moment.COLD], "ms",
        Target(Must.AT_MOST, load_ms + 2 * median(fresh)), "allowed: the load, and 2 × the p99 on a fresh key",
    )  # fmt: skip


def _p99s(outcomes: Sequence[Outcome]) -> list[float]:
    return [outcome.percentile_ms(99) for outcome in outcomes]


def _ratios(these: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return ratios round by round; the last one may be missing after Ctrl-C."""
    return [one / other for one, other in zip(these, others, strict=False)]


def _of(runs: Sequence[SimultaneousRun], variant: Variant, moment: Moment) -> list[Outcome]:
    return [run.outcome for run in runs if run.variant is variant and run.moment is moment]


def _counts(runs: Sequence[SimultaneousRun], variants: Sequence[Variant], title: str) -> Table:
    rows: list[list[TableCell]] = [
        [
            str(moment), variant.title, str(variant.kind), max(len(one.reads) for one in found),
            max(len(one.recomputes) for one in found),
            max((recompute.at_once for one in found for recompute in one.recomputes), default=0),
            max(one.errors.total() for one in found),
            *(median([one.percentile_ms(percent) for one in found]) for percent in (50, 99, 100)),
            median([one.percentile_ms(99, from_start=True) for one in found]),
        ]
        for moment in Moment
        for variant in variants
        if (found := _of(runs, variant, moment))
    ]  # fmt: skip
    return Table(f"{title}; counts of the worst round, times of the median", _COLUMNS, rows)


def _chart(runs: Sequence[SimultaneousRun], variants: Sequence[Variant]) -> Plot:
    p99s = {variant.title: _p99s(_of(runs, variant, Moment.EXPIRY)) for variant in variants}
    ours = tuple(variant.title for variant in variants if variant.strategy is Ours)
    title = f"99th percentile of the reads, {Moment.EXPIRY}"
    plot = bars(f"{_GROUP}-p99", title, "p99 (ms)", {"p99": p99s}, ours=ours)
    return replace(plot, caption=f"{plot.caption} Threads and tasks wait for different things: compare within a kind.")
