"""What a scenario of steady reading comes to: tables, events over time, figures and pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks.figures import Figure, Must, Result, Target
from benchmarks.stampede.lanes import Lane
from benchmarks.stampede.options import Scale, Scenario
from benchmarks.stampede.steady import LaneRun
from benchmarks.stampede.steady_events import events, spans
from benchmarks.stampede.steady_plots import plots
from benchmarks.stampede.strategies.ours import Ours
from benchmarks.stampede.tally import BUCKETS_MS, histogram
from benchmarks.tables import Table

_TITLES: Final = {
    Scenario.WORKERS: "readers that pause between two reads",
    Scenario.HOT_KEY: "one hot key, and who recomputes is killed once",
}


def result_of(scenario: Scenario, runs: Sequence[LaneRun], scale: Scale) -> Result:
    """Put it together."""
    tables = [_counts(scenario, runs), _latencies(scenario, runs)]
    if any(run.crash for run in runs):
        tables.append(_crashes(scenario, runs))
    tables += [cannot(scenario, [run.lane for run in runs]), events(scenario, runs), spans(scenario, runs, scale)]
    return Result(
        scenario, _TITLES[scenario], figures=tuple(_figures(scenario, runs)), tables=tuple(tables),
        plots=tuple(plots(scenario, runs)) if runs else (),
    )  # fmt: skip


def _figures(scenario: Scenario, runs: Sequence[LaneRun]) -> Iterator[Figure]:
    for run in runs:
        if run.lane.strategy is not Ours:
            continue
        tally, title = run.tally, run.lane.title
        none, one = (Target(Must.BE, 0), Target(Must.AT_MOST, 1)) if scenario is Scenario.WORKERS else (None, None)
        errors = ", ".join(f"{name}: {times}" for name, times in tally.errors_by_name.most_common(3))
        errors = f"first reads included: {errors}" if errors else ""
        yield Figure(scenario, f"{title}: misses after the first round", (float(tally.misses),), "", none)
        yield Figure(scenario, f"{title}: recomputes at once, at most", (float(tally.most_at_once),), "", one)
        yield Figure(scenario, f"{title}: errors", (float(tally.errors),), "", note=errors)


def _counts(scenario: Scenario, runs: Sequence[LaneRun]) -> Table:
    columns = (
        "strategy", "reads", "hits", "early", "misses", "recomputes", "at_once", "contention", "ducked_out", "stale",
        "errors", "p50_ms", "p99_ms", "max_ms", "reads_per_s", "origin_per_s",
    )  # fmt: skip
    rows = []
    for run in runs:
        tally, unseen = run.tally, run.lane.strategy.unseen
        rows.append((
            run.lane.title, tally.reads, tally.hits, tally.early, tally.misses, tally.recomputes, tally.most_at_once,
            None if "contention" in unseen else tally.contention, None if "ducked_out" in unseen else tally.ducked_out,
            tally.stale, tally.errors, tally.p50_ms, tally.p99_ms, tally.max_ms, tally.reads_per_second,
            tally.recomputes_per_second,
        ))  # fmt: skip
    return Table(f"{scenario}", _TITLES[scenario], columns, tuple(rows))


def _latencies(scenario: Scenario, runs: Sequence[LaneRun]) -> Table:
    rows = tuple(
        (run.lane.title, bucket, reads)
        for run in runs
        for bucket, reads in zip(BUCKETS_MS, histogram(run.reads), strict=True)
    )
    return Table(f"{scenario}-latency", "reads by what they took", ("strategy", "up_to_ms", "reads"), rows, False)  # noqa: FBT003 - is_shown


def _crashes(scenario: Scenario, runs: Sequence[LaneRun]) -> Table:
    columns = (
        "strategy", "next_recompute_s", "fresh_again_s", "reads_meanwhile", "hits", "stale", "misses", "errors",
        "p99_ms", "max_ms",
    )  # fmt: skip
    rows = []
    for run in runs:
        if (crash := run.crash) is not None:
            found = crash.meanwhile
            rows.append((
                run.lane.title, crash.again, crash.fresh, found.reads, found.hits, found.stale, found.misses,
                found.errors, found.p99_ms, found.max_ms,
            ))  # fmt: skip
    return Table(f"{scenario}-crash", "after the kill of who recomputed", columns, tuple(rows))


def cannot(scenario: Scenario, lanes: Sequence[Lane]) -> Table:
    """Return the table of what each can't do."""
    rows = tuple((lane.title, str(lane.kind), lane.strategy.cannot) for lane in lanes)
    return Table(f"{scenario}-limits", "what each can't do", ("strategy", "read_by", "limits"), rows)
