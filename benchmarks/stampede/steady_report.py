"""Tables, events, figures and charts of steady reading."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from benchmarks.reports.charts import Plot, PlotKind, Series
from benchmarks.reports.results import Figure, Must, Result, Table, Target
from benchmarks.stampede.config import Scenario
from benchmarks.stampede.recorder import Mark
from benchmarks.stampede.steady import VariantRun
from benchmarks.stampede.strategies.ours import Ours
from benchmarks.stampede.tally import survival_curve
from benchmarks.stampede.variants import Variant

_EVENTS: Final = ((Mark.ERROR, "error"), (Mark.MISS, "miss"), (Mark.EARLY, "early"), (Mark.CONTENDED, "contention"))


def clock_origin(runs: Sequence[VariantRun]) -> float:
    """Return where the clock of the table of events begins (monotonic seconds)."""
    return min((run.since for run in runs), default=0.0)


def events(scenario: Scenario, runs: Sequence[VariantRun]) -> Table:
    """Return all that is no plain hit, and no ducking out, of which there may be thousands a second."""
    rows: list[tuple[Any, ...]] = []
    zero = clock_origin(runs)
    for run in runs:
        title = run.variant.title
        for recompute in run.recomputes:
            took = None if recompute.ended is None else (recompute.ended - recompute.began) * 1000
            rows.append((recompute.began - zero, title, "recompute", took, recompute.pid))
        if run.crash is not None:
            rows.append((run.crash.at - zero, title, "kill", None, None))
        ducked = (run.reads["marks"] & Mark.DUCKED) != 0
        for mark, name in _EVENTS:
            crash_after = run.reads[((run.reads["marks"] & mark) != 0) & ~ducked]
            rows += [(began - zero, title, name, took * 1000, None) for began, took, _ in crash_after.tolist()]
    rows.sort(key=lambda row: float(row[0]))
    columns = ("at_s", "strategy", "event", "took_ms", "pid")
    return Table(f"{scenario}-events", "events", columns, tuple(rows), is_shown=False)


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
        tables.append(_crashes(scenario, runs))
    tables += [limits(scenario, [run.variant for run in runs]), events(scenario, runs)]
    return Result(
        scenario, _TITLES[scenario], figures=tuple(_figures(scenario, runs)), tables=tuple(tables),
        plots=tuple(plots(scenario, runs)) if runs else (),
    )  # fmt: skip


def _figures(scenario: Scenario, runs: Sequence[VariantRun]) -> Iterator[Figure]:
    for run in runs:
        if run.variant.strategy is not Ours:
            continue
        tally, title = run.tally, run.variant.title
        none, one = (Target(Must.BE, 0), Target(Must.AT_MOST, 1)) if scenario is Scenario.WORKERS else (None, None)
        errors = ", ".join(f"{name}: {times}" for name, times in tally.errors_by_name.most_common(3))
        errors = f"first reads included: {errors}" if errors else ""
        yield Figure(f"{title}: misses after the first round", (float(tally.misses),), "", none)
        yield Figure(f"{title}: recomputes at once, at most", (float(tally.most_at_once),), "", one)
        yield Figure(f"{title}: errors", (float(tally.errors),), "", note=errors)


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
    return Table(f"{scenario}", _TITLES[scenario], columns, tuple(rows))


def _crashes(scenario: Scenario, runs: Sequence[VariantRun]) -> Table:
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
    return Table(f"{scenario}-crash", "after the kill of who recomputed", columns, tuple(rows))


def limits(scenario: Scenario, variants: Sequence[Variant]) -> Table:
    """Return the table of what each can't do."""
    rows = tuple((variant.title, str(variant.kind), variant.strategy.limits) for variant in variants)
    return Table(f"{scenario}-limits", "what each can't do", ("strategy", "read_by", "limits"), rows)
