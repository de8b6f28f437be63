"""What the herds come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from benchmarks.figures import Figure, Must, Result, Target
from benchmarks.plots import Plot, PlotKind, Series
from benchmarks.stampede.herds import HerdRun, Moment
from benchmarks.stampede.lanes import Lane
from benchmarks.stampede.options import Scale, Scenario
from benchmarks.stampede.steady_results import cannot
from benchmarks.stampede.strategies.ours import Ours
from benchmarks.statistics import middle
from benchmarks.tables import Cell, Table

_HERD: Final = Scenario.HERD


def result_of(runs: Sequence[HerdRun], lanes: Sequence[Lane], scale: Scale) -> Result:
    """Put it together."""
    title = f"{scale.workers:,} readers at the same moment"
    shown = [lane for lane in lanes if any(run.lane is lane for run in runs)]
    return Result(
        _HERD, title, figures=tuple(_figures(runs, shown)),
        tables=(_counts(runs, shown, title), cannot(_HERD, shown), _events(runs)),
        plots=tuple(_plots(runs, shown)) if runs else (),
    )  # fmt: skip


def _figures(runs: Sequence[HerdRun], lanes: Sequence[Lane]) -> Iterator[Figure]:
    for lane in lanes:
        if lane.strategy is not Ours:
            continue
        for moment in Moment:
            found = _of(runs, lane, moment)
            recomputes = tuple(float(run.outcome.recomputes) for run in found)
            kinds = sum((run.outcome.errors for run in found), Counter[str]())
            note = ", ".join(f"{kind}: {times}" for kind, times in kinds.most_common(3))
            failed = tuple(float(run.outcome.errors.total()) for run in found)
            what = f"{lane.title}, {moment}"
            yield Figure(_HERD, f"{what}: recomputes", recomputes, "", Target(Must.BE, 1), is_worst=True)
            yield Figure(_HERD, f"{what}: errors", failed, "", Target(Must.BE, 0), note, is_worst=True)
        yield from _against(runs, lane, [other for other in lanes if other.kind is lane.kind and other is not lane])


def _against(runs: Sequence[HerdRun], ours: Lane, others: Sequence[Lane]) -> Iterator[Figure]:
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
        yield Figure(_HERD, what, ratios, "×", target)


def _of(runs: Sequence[HerdRun], lane: Lane, moment: Moment) -> list[HerdRun]:
    return [run for run in runs if run.lane is lane and run.moment is moment]


def _counts(runs: Sequence[HerdRun], lanes: Sequence[Lane], title: str) -> Table:
    columns = (
        "moment", "strategy", "read_by", "reads", "recomputes", "at_once", "errors", "p50_ms", "p99_ms", "max_ms",
        "p99_from_start_ms",
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for moment in Moment:
        for lane in lanes:
            found = [(run, run.outcome) for run in _of(runs, lane, moment)]
            rows.append((
                str(moment), lane.title, str(lane.kind),
                max((len(outcome.reads) for _, outcome in found), default=0),
                max((outcome.recomputes for _, outcome in found), default=None),
                max((recompute.at_once for run, _ in found for recompute in run.recomputes), default=None),
                max((outcome.errors.total() for _, outcome in found), default=None),
                *(middle([outcome.percentile_ms(percent) for _, outcome in found]) for percent in (50, 99, 100)),
                middle([outcome.percentile_ms(99, from_start=True) for _, outcome in found]),
            ))  # fmt: skip
    return Table(f"{_HERD}", f"{title}; counts of the worst round, times of the median", columns, tuple(rows))


def _events(runs: Sequence[HerdRun]) -> Table:
    """Return each recompute, in seconds since the common start of its run."""
    rows = tuple(
        (
            run.round, str(run.moment), run.lane.title, f"{recompute.began - run.at:.4f}",
            None if recompute.ended is None else (recompute.ended - recompute.began) * 1000, recompute.pid,
        )
        for run in runs for recompute in run.recomputes
    )  # fmt: skip
    columns = ("round", "moment", "strategy", "at_s", "took_ms", "pid")
    return Table(f"{_HERD}-events", "recomputes of herds", columns, rows, is_shown=False)


def _plots(runs: Sequence[HerdRun], lanes: Sequence[Lane]) -> Iterator[Plot]:
    yield Plot(
        f"{_HERD}-p99", "99th percentile of the reads", "", "ms",
        tuple(_bars(moment, runs, lanes, lambda run: run.outcome.percentile_ms(99)) for moment in Moment),
        PlotKind.BARS, y_log=True, caption="Threads and tasks wait for different things: compare within a kind.",
    )  # fmt: skip
    yield Plot(
        f"{_HERD}-origin", "Queries that one herd costs the origin", "", "queries",
        tuple(_bars(moment, runs, lanes, lambda run: float(run.outcome.recomputes)) for moment in Moment),
        PlotKind.BARS, y_log=True, caption="One is what is needed.",
    )  # fmt: skip


def _bars(moment: Moment, runs: Sequence[HerdRun], lanes: Sequence[Lane], figure: Callable[[HerdRun], float]) -> Series:
    found = [[figure(run) for run in _of(runs, lane, moment)] for lane in lanes]
    return Series(
        str(moment), tuple(lane.title for lane in lanes), tuple(middle(values) for values in found),
        tuple(min(values, default=0.0) for values in found), tuple(max(values, default=0.0) for values in found),
    )  # fmt: skip
