"""Tables, figures and charts of steady reading."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from benchmarks.reports.charts import Plot, PlotKind, Series
from benchmarks.reports.results import Figure, Must, Result, Table, Target, figure
from benchmarks.stampede.config import Scenario
from benchmarks.stampede.steady import VariantRun
from benchmarks.stampede.strategies.ours import Ours
from benchmarks.stampede.tally import survival_curve
from benchmarks.stampede.variants import Variant

_AROUND_SECONDS: Final = (-1.0, 6.0)
_AROUND_STEP_SECONDS: Final = 0.1


def plots(scenario: Scenario, runs: Sequence[VariantRun]) -> Iterator[Plot]:
    """Yield the charts of a scenario."""
    ours = tuple(run.variant.title for run in runs if run.variant.strategy is Ours)
    yield Plot(
        f"{scenario}-recomputes", "Recomputes so far", "time (s)", "recomputes",
        tuple(_recomputes_so_far(run) for run in runs), PlotKind.STEPS, y_log=True, ours=ours,
        caption="A step up of one is a refresh; a high one is a stampede.",
    )  # fmt: skip
    latencies = [(run.variant.title, *survival_curve(run.reads)) for run in runs]
    yield Plot(
        f"{scenario}-latency", "Reads by how long they took", "at least (ms)", "share of reads",
        tuple(Series(title, tuple(took), tuple(shares)) for title, took, shares in latencies if took),
        x_log=True, y_log=True, ours=ours,
        caption="A line that falls early is a cache whose readers do not wait.",
    )  # fmt: skip
    if any(run.crash for run in runs):
        yield Plot(
            f"{scenario}-crash", "Reads served around the kill", "since the kill (s)", "reads/s",
            tuple(_reads_around(run) for run in runs if run.crash is not None), ours=ours,
            caption="Where a line falls to nothing, nobody is served until the lock of the dead has run out.",
        )  # fmt: skip


def _recomputes_so_far(run: VariantRun) -> Series:
    at = [recompute.began - run.since for recompute in run.recomputes]
    ends = run.until - run.since
    return Series(run.variant.title, (*at, ends), (*(float(number + 1) for number in range(len(at))), float(len(at))))


def _reads_around(run: VariantRun) -> Series:
    """Count reads by when they ended: a read that waits serves nobody meanwhile."""
    assert run.crash is not None  # noqa: S101 - for mypy; the caller has looked
    edges = np.arange(*_AROUND_SECONDS, _AROUND_STEP_SECONDS)
    ended = run.reads["began"] + run.reads["took"] - run.crash.at
    rates = np.histogram(ended, edges)[0] / _AROUND_STEP_SECONDS
    return Series(run.variant.title, tuple(edges[:-1].tolist()), tuple(rates.tolist()))


_TITLES: Final = {
    Scenario.WORKERS: "readers that pause between two reads",
    Scenario.HOT_KEY: "one hot key, and who recomputes is killed once",
}


def result_of(scenario: Scenario, runs: Sequence[VariantRun]) -> Result:
    """Put it together."""
    tables = [_counts(scenario, runs)]
    if any(run.crash for run in runs):
        tables.append(_crashes(runs))
    tables.append(limits([run.variant for run in runs]))
    charts = list(plots(scenario, runs)) if runs else []
    return Result(scenario, _TITLES[scenario], list(_figures(scenario, runs)), tables=tables, charts=charts)


def _figures(scenario: Scenario, runs: Sequence[VariantRun]) -> Iterator[Figure]:
    for run in runs:
        if run.variant.strategy is not Ours:
            continue
        tally, title = run.tally, run.variant.title
        none, one = (Target(Must.BE, 0), Target(Must.AT_MOST, 1)) if scenario is Scenario.WORKERS else (None, None)
        errors = ", ".join(f"{name}: {times}" for name, times in tally.errors_by_name.most_common(3))
        errors = f"first reads included: {errors}" if errors else ""
        yield figure(f"{title}: misses after the first round", (float(tally.misses),), "", none)
        yield figure(f"{title}: recomputes at once, at most", (float(tally.most_at_once),), "", one)
        yield figure(f"{title}: errors", (float(tally.errors),), "", note=errors)


def _counts(scenario: Scenario, runs: Sequence[VariantRun]) -> Table:
    columns = (
        "strategy", "reads", "hits", "early", "misses", "recomputes", "at_once", "contention", "ducked_out", "stale",
        "errors", "p50_ms", "p99_ms", "max_ms", "reads_per_s", "origin_per_s",
    )  # fmt: skip
    rows = []
    for run in runs:
        tally, unobservable = run.tally, run.variant.strategy.unobservable
        rows.append((
            run.variant.title, tally.reads, tally.hits, tally.early, tally.misses, tally.recomputes, tally.most_at_once,
            None if "contention" in unobservable else tally.contention,
            None if "ducked_out" in unobservable else tally.ducked_out,
            tally.stale, tally.errors, tally.p50_ms, tally.p99_ms, tally.max_ms, tally.reads_per_second,
            tally.recomputes_per_second,
        ))  # fmt: skip
    return Table(_TITLES[scenario], columns, rows)


def _crashes(runs: Sequence[VariantRun]) -> Table:
    columns = (
        "strategy", "next_recompute_s", "fresh_again_s", "reads_meanwhile", "hits", "stale", "misses", "errors",
        "p99_ms", "max_ms",
    )  # fmt: skip
    rows = []
    for run in runs:
        if (crash := run.crash) is not None:
            found = crash.meanwhile
            rows.append((
                run.variant.title, crash.again, crash.fresh, found.reads, found.hits, found.stale, found.misses,
                found.errors, found.p99_ms, found.max_ms,
            ))  # fmt: skip
    return Table("after the kill of who recomputed", columns, rows)


def limits(variants: Sequence[Variant]) -> Table:
    """Return the table of what each can't do."""
    rows = [(variant.title, str(variant.kind), variant.strategy.limits) for variant in variants]
    return Table("what each can't do", ("strategy", "read_by", "limits"), rows)
