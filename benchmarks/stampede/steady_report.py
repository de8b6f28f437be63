"""Tables, figures and charts of steady reading."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from benchmarks.reports.charts import Plot, PlotKind, Series
from benchmarks.reports.results import Figure, Must, Result, Table, Target, figure
from benchmarks.stampede.config import Scenario
from benchmarks.stampede.recorder import Mark
from benchmarks.stampede.steady import Crash, Tally, VariantRun
from benchmarks.stampede.strategies.ours import Ours
from benchmarks.stampede.variants import Variant, limits

_AROUND_SECONDS: Final = (-1.0, 6.0)
_AROUND_STEP_SECONDS: Final = 0.1
_TITLES: Final = {
    Scenario.WORKERS: "readers that pause between two reads",
    Scenario.HOT_KEY: "one hot key, and who recomputes is killed once",
}
_COLUMNS: Final = (
    "strategy", "reads", "hits", "early", "misses", "recomputes", "at_once", "contention", "ducked_out", "stale",
    "errors", "p50_ms", "p99_ms", "max_ms", "reads_per_s", "origin_per_s",
)  # fmt: skip
_CRASH_COLUMNS: Final = (
    "strategy", "next_recompute_s", "fresh_again_s", "reads_meanwhile", "hits", "stale", "misses", "errors", "p99_ms",
    "max_ms",
)  # fmt: skip


def result_of(scenario: Scenario, runs: Sequence[VariantRun]) -> Result:
    """Return the result of a scenario."""
    title = _TITLES[scenario]
    tables = [Table(title, _COLUMNS, [_row(run.variant, run.tally) for run in runs])]
    if any(run.crash for run in runs):
        rows = [_crash_row(run.variant, run.crash) for run in runs if run.crash]
        tables.append(Table("after the kill of who recomputed", _CRASH_COLUMNS, rows))
    tables.append(limits([run.variant for run in runs]))
    return Result(scenario, title, list(_figures(scenario, runs)), tables=tables, charts=list(_plots(scenario, runs)))


def _row(variant: Variant, tally: Tally) -> tuple[str | int | float | None, ...]:
    unobservable, recomputes = variant.strategy.unobservable, len(tally.recomputes)
    return (
        variant.title, len(tally.reads), tally.hits, tally.marked(Mark.EARLY), tally.marked(Mark.MISS), recomputes,
        tally.most_at_once,
        None if "contention" in unobservable else tally.marked(Mark.CONTENDED),
        None if "ducked_out" in unobservable else tally.marked(Mark.DUCKED),
        tally.marked(Mark.STALE), tally.marked(Mark.ERROR), *tally.percentiles_ms(50, 99, 100),
        tally.per_second(len(tally.reads)), tally.per_second(recomputes),
    )  # fmt: skip


def _crash_row(variant: Variant, crash: Crash) -> tuple[str | int | float, ...]:
    found = crash.meanwhile
    return (
        variant.title, crash.again, crash.fresh, len(found.reads), found.hits,
        *map(found.marked, (Mark.STALE, Mark.MISS, Mark.ERROR)), *found.percentiles_ms(99, 100),
    )  # fmt: skip


def _figures(scenario: Scenario, runs: Sequence[VariantRun]) -> Iterator[Figure]:
    none, one = (Target(Must.BE, 0), Target(Must.AT_MOST, 1)) if scenario is Scenario.WORKERS else (None, None)
    for run in runs:
        if run.variant.strategy is Ours:
            tally, title = run.tally, run.variant.title
            errors = ", ".join(f"{name}: {times}" for name, times in tally.errors.most_common(3))
            note = f"first reads included: {errors}" if errors else ""
            yield figure(f"{title}: misses after the first round", (float(tally.marked(Mark.MISS)),), "", none)
            yield figure(f"{title}: recomputes at once, at most", (float(tally.most_at_once),), "", one)
            yield figure(f"{title}: errors", (float(tally.marked(Mark.ERROR)),), "", note=note)


def _plots(scenario: Scenario, runs: Sequence[VariantRun]) -> Iterator[Plot]:
    ours = tuple(run.variant.title for run in runs if run.variant.strategy is Ours)
    yield Plot(
        f"{scenario}-recomputes", "Recomputes so far", "time (s)", "recomputes",
        tuple(map(_recomputes_so_far, runs)), PlotKind.STEPS, y_log=True, ours=ours,
        caption="A step up of one is a refresh; a high one is a stampede.",
    )  # fmt: skip
    latencies = [(run.variant.title, *run.tally.survival_curve()) for run in runs]
    yield Plot(
        f"{scenario}-latency", "Reads by how long they took", "at least (ms)", "share of reads",
        tuple(Series(title, tuple(took), tuple(shares)) for title, took, shares in latencies if took),
        x_log=True, y_log=True, ours=ours,
        caption="A line that falls early is a cache whose readers do not wait.",
    )  # fmt: skip
    if any(run.crash for run in runs):
        yield Plot(
            f"{scenario}-crash", "Reads served around the kill", "since the kill (s)", "reads/s",
            tuple(_reads_around(run, run.crash.at) for run in runs if run.crash is not None), ours=ours,
            caption="Where a line falls to nothing, nobody is served until the lock of the dead has run out.",
        )  # fmt: skip


def _recomputes_so_far(run: VariantRun) -> Series:
    at = [recompute.began - run.since for recompute in run.tally.recomputes]
    counts = (*map(float, range(1, len(at) + 1)), float(len(at)))
    return Series(run.variant.title, (*at, run.until - run.since), counts)


def _reads_around(run: VariantRun, killed_at: float) -> Series:
    """Count reads by their ends, since a waiting read serves nobody meanwhile."""
    edges = np.arange(*_AROUND_SECONDS, _AROUND_STEP_SECONDS)
    ended = run.tally.reads["began"] + run.tally.reads["took"] - killed_at
    rates = np.histogram(ended, edges)[0] / _AROUND_STEP_SECONDS
    return Series(run.variant.title, tuple(edges[:-1].tolist()), tuple(rates.tolist()))
