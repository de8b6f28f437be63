"""Tables, figures and chart of simultaneous reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from benchmarks.apparatus.statistics import median
from benchmarks.reports.charts import bars
from benchmarks.reports.results import Figure, Must, Result, Table, TableCell, Target, figure
from benchmarks.stampede.config import Scale, Scenario
from benchmarks.stampede.herd import Outcome
from benchmarks.stampede.simultaneous import Moment, Runs
from benchmarks.stampede.strategies.ours import Ours
from benchmarks.stampede.variants import Variant, limits

_GROUP: Final = Scenario.HERD
_COLUMNS: Final = (
    "moment", "strategy", "read_by", "reads", "recomputes", "at_once", "errors", "p50_ms", "p99_ms", "max_ms",
    "p99_from_start_ms",
)  # fmt: skip
_NONE: Final = Target(Must.BE, 0)
_ONE: Final = Target(Must.BE, 1)
_MAX_OF_FRESH: Final = Target(Must.AT_MOST, 1.2)


def result_of(runs: Runs, variants: Sequence[Variant], scale: Scale) -> Result:
    """Return the result of the herds."""
    title = f"{scale.workers:,} readers at the same moment"
    own = [variant for variant in variants if variant.strategy is Ours]
    figures = [one for variant in own for one in _figures(runs, variant, variants, scale)]
    p99s = {variant.title: _p99s(runs[variant, Moment.EXPIRY]) for variant in variants}
    chart = f"99th percentile of the reads, {Moment.EXPIRY}"
    plot = bars(f"{_GROUP}-p99", chart, "p99 (ms)", {"p99": p99s}, ours=tuple(variant.title for variant in own))
    caption = f"{plot.caption} Threads and tasks wait for different things: compare within a kind."
    tables = [_counts(runs, variants, title), limits(variants)]
    return Result(_GROUP, title, figures, tables=tables, charts=[replace(plot, caption=caption)])


def _figures(runs: Runs, variant: Variant, variants: Sequence[Variant], scale: Scale) -> Iterator[Figure]:
    for moment in Moment:
        outcomes, what = runs[variant, moment], f"{variant.title}, {moment}"
        kinds = sum((outcome.errors for outcome in outcomes), Counter[str]())
        note = ", ".join(f"{kind}: {times}" for kind, times in kinds.most_common(3))
        recomputes = [float(len(outcome.recomputes)) for outcome in outcomes]
        one = _NONE if moment is Moment.FRESH else _ONE
        yield figure(f"{what}: recomputes", recomputes, "", one, is_worst=True)
        failed = [float(outcome.errors.total()) for outcome in outcomes]
        yield figure(f"{what}: errors", failed, "", _NONE, note, is_worst=True)
    # The same herd on a fresh key shows the time of the threads and tasks themselves.
    fresh, expiry, cold = (_p99s(runs[variant, moment]) for moment in Moment)
    yield figure(
        f"{variant.title}, {Moment.EXPIRY}: p99 against a fresh key", _ratios(expiry, fresh), target=_MAX_OF_FRESH
    )
    load_ms = scale.delta * 1000
    yield figure(
        f"{variant.title}, {Moment.COLD}: p99, of which the load takes {load_ms:g} ms", cold, "ms",
        Target(Must.AT_MOST, load_ms + 2 * median(fresh)), "allowed: the load, and 2 × the p99 on a fresh key",
    )  # fmt: skip
    for other in variants:
        if other.kind is variant.kind and other is not variant:
            ratios = _ratios(_p99s(runs[other, Moment.EXPIRY]), expiry)
            target = Target(Must.MORE_THAN, 1) if other.strategy.is_peer else None
            yield figure(f"{Moment.EXPIRY}: p99 of {other.title}, against {variant.title}", ratios, target=target)


def _p99s(outcomes: Sequence[Outcome]) -> list[float]:
    return [outcome.percentile_ms(99) for outcome in outcomes]


def _ratios(these: Sequence[float], others: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(these, others, strict=True)]


def _counts(runs: Runs, variants: Sequence[Variant], title: str) -> Table:
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
        if (found := runs[variant, moment])
    ]  # fmt: skip
    return Table(f"{title}; counts of the worst round, times of the median", _COLUMNS, rows)
