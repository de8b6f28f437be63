"""Steady reading in pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from benchmarks.plots import Plot, PlotKind, Series
from benchmarks.stampede.options import Scenario
from benchmarks.stampede.steady import LaneRun
from benchmarks.stampede.tally import as_slow_as

_AROUND_SECONDS: Final = (-1.0, 6.0)
_AROUND_STEP_SECONDS: Final = 0.1


def plots(scenario: Scenario, runs: Sequence[LaneRun]) -> Iterator[Plot]:
    """Yield the pictures of a scenario."""
    yield Plot(
        f"{scenario}-recomputes", "Recomputes so far", "seconds", "recomputes",
        tuple(_so_far(run) for run in runs), PlotKind.STEPS, y_log=True,
        caption="A step up of one is a refresh; a high one is a stampede.",
    )  # fmt: skip
    latencies = [(run.lane.title, *as_slow_as(run.reads)) for run in runs]
    yield Plot(
        f"{scenario}-latency", "Reads that took at least so long", "ms", "share of reads",
        tuple(Series(title, tuple(took), tuple(shares)) for title, took, shares in latencies if took),
        x_log=True, y_log=True,
        caption="A line that falls early is a cache whose readers do not wait.",
    )  # fmt: skip
    titles = tuple(run.lane.title for run in runs)
    yield Plot(
        f"{scenario}-origin", "Queries that the origin was asked", "", "queries",
        (Series("queries", titles, tuple(float(run.tally.recomputes) for run in runs)),), PlotKind.BARS, y_log=True,
        caption="In the same time, for the same key.",
    )  # fmt: skip
    if any(run.crash for run in runs):
        yield Plot(
            f"{scenario}-crash", "Reads served around the kill", "seconds since the kill", "reads/s",
            tuple(_around(run) for run in runs if run.crash is not None),
            caption="Where a line falls to nothing, nobody is served until the lock of the dead has run out.",
        )  # fmt: skip


def _so_far(run: LaneRun) -> Series:
    at = [recompute.began - run.since for recompute in run.recomputes]
    ends = run.until - run.since
    return Series(run.lane.title, (*at, ends), (*(float(number + 1) for number in range(len(at))), float(len(at))))


def _around(run: LaneRun) -> Series:
    """Count reads by when they ended: a read that waits serves nobody meanwhile."""
    assert run.crash is not None  # noqa: S101 - for mypy; the caller has looked
    edges = np.arange(*_AROUND_SECONDS, _AROUND_STEP_SECONDS)
    ended = run.reads["began"] + run.reads["took"] - run.crash.at
    rates = np.histogram(ended, edges)[0] / _AROUND_STEP_SECONDS
    return Series(run.lane.title, tuple(edges[:-1].tolist()), tuple(rates.tolist()))
