"""Steady reading over time: events and counts, all on one clock, which begins where the first reads count."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from benchmarks.stampede.notes import Mark
from benchmarks.stampede.options import Scale, Scenario
from benchmarks.stampede.steady import LaneRun
from benchmarks.stampede.tally import between
from benchmarks.tables import Cell, Table

_SPANS: Final = 120
_EVENTS: Final = ((Mark.ERROR, "error"), (Mark.MISS, "miss"), (Mark.EARLY, "early"), (Mark.CONTENDED, "contention"))


def zero_of(runs: Sequence[LaneRun]) -> float:
    """Return where the clock of the tables begins (monotonic seconds)."""
    return min((run.since for run in runs), default=0.0)


def events(scenario: Scenario, runs: Sequence[LaneRun]) -> Table:
    """Return all that is no plain hit, and no ducking out, of which there may be thousands a second."""
    rows: list[tuple[Any, ...]] = []
    zero = zero_of(runs)
    for run in runs:
        title = run.lane.title
        for recompute in run.recomputes:
            took = None if recompute.ended is None else (recompute.ended - recompute.began) * 1000
            rows.append((recompute.began - zero, title, "recompute", took, recompute.pid))
        if run.crash is not None:
            rows.append((run.crash.at - zero, title, "kill", None, None))
        ducked = (run.reads["marks"] & Mark.DUCKED) != 0
        for mark, name in _EVENTS:
            told = run.reads[((run.reads["marks"] & mark) != 0) & ~ducked]
            rows += [(began - zero, title, name, took * 1000, None) for began, took, _ in told.tolist()]
    rows.sort(key=lambda row: float(row[0]))
    columns = ("at_s", "strategy", "event", "took_ms", "pid")
    return Table(f"{scenario}-events", "events", columns, tuple(rows), is_shown=False)


def spans(scenario: Scenario, runs: Sequence[LaneRun], scale: Scale) -> Table:
    """Return counts of short spans, on the clock of the events."""
    columns = (
        "from_s", "to_s", "strategy", "reads", "early", "misses", "ducked_out", "stale", "errors", "recomputes",
        "p99_ms", "max_ms",
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    step, zero = scale.seconds / _SPANS, zero_of(runs)
    for run in runs:
        for number in range(math.ceil((run.until - run.since) / step)):
            since, until = run.since + number * step, min(run.until, run.since + (number + 1) * step)
            reads = between(run.reads, since, until)
            marks, took = reads["marks"], reads["took"] * 1000
            p99, most = np.percentile(took, (99, 100)).tolist() if len(took) else (None, None)
            counted = [
                int(np.count_nonzero(marks & mark))
                for mark in (Mark.EARLY, Mark.MISS, Mark.DUCKED, Mark.STALE, Mark.ERROR)
            ]
            begun = sum(since <= recompute.began < until for recompute in run.recomputes)
            rows.append((
                since - zero, until - zero, run.lane.title, len(reads), *counted, begun,
                p99, most,
            ))  # fmt: skip
    return Table(f"{scenario}-spans", "counts over time", columns, tuple(rows), is_shown=False)
