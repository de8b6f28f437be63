"""Foundations of `benchmarks topology`: how a trial begins, and that no late read is left out."""

from __future__ import annotations

import asyncio
import time
from itertools import chain, repeat

import numpy as np
import pytest

from benchmarks.topology.plan import Load
from benchmarks.topology.reader import Served
from benchmarks.topology.trial import remaining_seconds, run_traffic


@pytest.mark.parametrize(
    ("rate", "beta_delta"), [(2.0, 0.0), (0.5, 0.05), (8.0, 0.05), (8.0, 0.25), (40.0, 0.05), (40.0, 0.25)]
)
def test_a_trial_begins_in_the_steady_state_of_a_long_run(rate: float, beta_delta: float) -> None:
    """Compare with a run of one key over many expiries: how long it is expired, and its average age."""
    ttl_seconds, rng = 2.0, np.random.default_rng(5)
    fresh_integral = overdue_seconds = total = 0.0
    for _ in range(1_500):
        lead = early_lead(rng, rate, beta_delta, ttl_seconds)
        late = rng.exponential(1 / rate) if lead == 0.0 else 0.0
        fresh_integral += (ttl_seconds**2 - lead**2) / 2
        overdue_seconds += late
        total += ttl_seconds - lead + late
    drawn = remaining_seconds(
        rng, ttl_seconds=ttl_seconds, beta_deltas=np.full(20_000, beta_delta), rates=np.full(20_000, rate)
    )
    fresh = drawn[drawn > 0]
    assert (drawn <= 0).mean() == pytest.approx(overdue_seconds / total, abs=0.02)
    assert fresh.mean() == pytest.approx(fresh_integral / (total - overdue_seconds), rel=0.06)


def early_lead(rng: np.random.Generator, rate: float, beta_delta: float, ttl_seconds: float) -> float:
    """Simulate one life of an entry, read by read; return how early it was refreshed, 0.0 if it was not."""
    left = ttl_seconds
    while (left := left - rng.exponential(1 / rate)) > 0:
        if beta_delta and min(-beta_delta * np.log(1 - rng.random()), ttl_seconds / 2) >= left:
            return float(left)
    return 0.0


def test_an_open_loop_counts_from_when_a_read_was_due() -> None:
    """One read blocks the whole loop; the reads due meanwhile count with their full delay."""
    blocked: list[int] = []

    async def read(number: int) -> Served:
        if not blocked:
            blocked.append(number)
            time.sleep(0.3)  # noqa: ASYNC251 - the loop stands still, as in a pause of the whole process
        return Served.FRESH

    async def run() -> list[float]:
        forty = chain(repeat(1.0, 40), [1e9])  # one every 10 ms, and then none for long
        reads = await run_traffic(read, repeat(1), forty, Load(reads_per_second=100), time.monotonic() + 3_600)
        return [one.done - one.due for one in reads]

    late = asyncio.run(run())
    assert len(late) == 40  # none is left out
    assert sum(seconds > 0.1 for seconds in late) >= 19  # those due in the first 200 ms of the stand-still
