"""Counts of one variant's reads and recomputes. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.stampede.origin import Recompute
from benchmarks.stampede.recorder import Mark


@dataclass(frozen=True, slots=True)
class Tally:
    """The counts of one variant. Times in ms; the share of one second is ``seconds`` long.

    ``errors_by_name`` counts also errors of first reads.
    """

    reads: int
    hits: int
    early: int
    misses: int
    stale: int
    contention: int
    ducked_out: int
    errors: int
    recomputes: int
    most_at_once: int
    seconds: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    errors_by_name: Counter[str] = field(default_factory=Counter)

    @property
    def reads_per_second(self) -> float:
        return self.reads / self.seconds if self.seconds else math.nan

    @property
    def recomputes_per_second(self) -> float:
        """Queries of the origin per second."""
        return self.recomputes / self.seconds if self.seconds else math.nan


def between(reads: NDArray[Any], since: float, until: float) -> NDArray[Any]:
    """Return the reads that count: begun in this span, and no reader's first."""
    counted = (reads["began"] >= since) & (reads["began"] < until) & ((reads["marks"] & Mark.FIRST) == 0)
    found: NDArray[Any] = reads[counted]
    return found


def begun_between(recomputes: Sequence[Recompute], since: float, until: float) -> list[Recompute]:
    """Return the recomputes that count."""
    return [recompute for recompute in recomputes if since <= recompute.began < until]


def count(
    reads: NDArray[Any], recomputes: Sequence[Recompute], seconds: float, errors: Counter[str] | None = None
) -> Tally:
    """Count."""
    marks, took = reads["marks"], reads["took"] * 1000

    def with_mark(mark: Mark) -> int:
        return int(np.count_nonzero(marks & mark))

    p50, p99, most = (float(value) for value in np.percentile(took, (50, 99, 100))) if len(took) else (math.nan,) * 3
    return Tally(
        reads=len(reads),
        hits=int(np.count_nonzero((marks & (Mark.MISS | Mark.ERROR)) == 0)),
        early=with_mark(Mark.EARLY),
        misses=with_mark(Mark.MISS),
        stale=with_mark(Mark.STALE),
        contention=with_mark(Mark.CONTENDED),
        ducked_out=with_mark(Mark.DUCKED),
        errors=with_mark(Mark.ERROR),
        recomputes=len(recomputes),
        most_at_once=max((recompute.at_once for recompute in recomputes), default=0),
        seconds=seconds,
        p50_ms=p50,
        p99_ms=p99,
        max_ms=most,
        errors_by_name=errors or Counter(),
    )


def survival_curve(reads: NDArray[Any], points: int = 200) -> tuple[list[float], list[float]]:
    """Return times in ms, and the share of reads that took at least so long; at most ``points`` of them, and not none.

    The points stand closer the fewer reads are left: each decade of the share has as many.
    """
    took = np.sort(reads["took"]) * 1000
    if not len(took):
        return [], []
    left = np.unique(np.geomspace(1, len(took), points).astype(int))[::-1]
    return [float(took[len(took) - many]) for many in left], [float(many / len(took)) for many in left]
