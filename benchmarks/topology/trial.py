"""One trial: keys are stored with the ages of a long run, traffic runs, and reads are counted."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.apparatus.loops import raise_if_cancelled
from benchmarks.apparatus.statistics import percentile
from benchmarks.topology.graphs import shares
from benchmarks.topology.plan import CLIENTS, Trial
from benchmarks.topology.queries import OriginLoad
from benchmarks.topology.reader import Served, TrialReader

_BLOCK: Final = 4_096


class Read(NamedTuple):
    """One read: its due time and its end (monotonic, s), and how it was served."""

    due: float
    done: float
    served: Served


async def _closed_loop(reader: TrialReader, draws: Iterator[int], ends_at: float) -> list[Read]:
    reads: list[Read] = []

    async def client() -> None:
        while (began := time.monotonic()) < ends_at:
            raise_if_cancelled()
            served = await reader.read_and_count(next(draws))
            reads.append(Read(began, time.monotonic(), served))

    await asyncio.gather(*[client() for _ in range(CLIENTS)])
    return reads


async def _open_loop(
    reader: TrialReader, draws: Iterator[int], gaps: Iterator[float], ends_at: float
) -> list[Read]:  # fmt: skip
    """Begin each read when it is due, and count its time from then, however late this loop is.

    A loop that waited for slow reads would leave out the reads held up by them, and so the worst times.
    """
    reads: list[Read] = []

    async def one(due: float, number: int) -> None:
        served = await reader.read_and_count(number)
        reads.append(Read(due, time.monotonic(), served))

    due = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        while (due := due + next(gaps)) < ends_at:
            if (ahead_seconds := due - time.monotonic()) > 0:
                await asyncio.sleep(ahead_seconds)
            tasks.create_task(one(due, next(draws)))
    return reads


def remaining_seconds(
    rng: np.random.Generator, ttl_seconds: float, beta_deltas: NDArray[np.float64], rates: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Draw the rest of each key's freshness; a negative one is the time since its expiry without a read.

    A key read at rate λ (a Poisson process) is not refreshed before its expiry with probability q = exp(−λ·β·δ), and
    then waits 1/λ for its next read. If it is refreshed early, that is about β·δ·ln(1 + λ·β·δ) before. This is close
    enough, since the first tenths of a second, which don't count, do the rest.

    ``beta_deltas`` is β·δ of each key in seconds, 0 without early refresh; ``rates`` are reads per second, more than 0.
    """
    seen = rates * beta_deltas
    missed = np.exp(-seen)
    lead_times = np.minimum(beta_deltas * np.log1p(seen), ttl_seconds / 2)
    overdue = missed / rates
    is_overdue = rng.random(len(rates)) < overdue / (ttl_seconds - (1 - missed) * lead_times + overdue)
    is_early = rng.random(len(rates)) >= missed
    fresh = ttl_seconds - rng.random(len(rates)) * (ttl_seconds - np.where(is_early, lead_times, 0.0))
    drawn: NDArray[np.float64] = np.where(is_overdue, -rng.exponential(1 / rates), fresh)
    return drawn


@dataclass(frozen=True, slots=True)
class Window:
    """Duration of a trial before it counts, and while it does, in seconds."""

    warm_up_seconds: float
    counted_seconds: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one trial, over the time in which it counted.

    Attributes:
        times_ms: the time of each read from when it was due.
        waited_percent, stale_percent: the percentages of reads that waited for a load, and that got a stale value at
            once.
        failures: the number of reads' errors, by name.
        recomputes_per_second: loads of the graph per second.
        origin_busy: the seconds per second that the graph spent on them, without pauses.
    """

    trial: Trial
    reads_per_second: float
    times_ms: tuple[float, ...]
    waited_percent: float
    stale_percent: float
    failures: dict[str, int]
    recomputes_per_second: float
    origin_busy: float

    @property
    def p50_ms(self) -> float:
        return percentile(self.times_ms, 50)

    @property
    def p95_ms(self) -> float:
        return percentile(self.times_ms, 95)

    @property
    def p99_ms(self) -> float:
        return percentile(self.times_ms, 99)


async def run_trial(reader: TrialReader, window: Window, expected_reads_per_second: float) -> Outcome:
    """Run a trial; the ages of entries at the start follow from the expected reads of all keys together."""
    trial, keys = reader.setup.trial, list(reader.setup.keys)
    of_each = shares(keys, trial.point.skew)
    await reader.put(_ages(reader, of_each * expected_reads_per_second))
    raise_if_cancelled()
    counted_from = time.monotonic() + window.warm_up_seconds
    ends_at = counted_from + window.counted_seconds
    try:
        reads, before, after = await asyncio.gather(
            _traffic(reader, _draws(trial, of_each), ends_at), _observe(reader, counted_from), _observe(reader, ends_at)
        )
    finally:
        await reader.clear()  # even if interrupted, since work in progress would find its connections closed
    raise_if_cancelled()
    counted = [read for read in reads if counted_from <= read.due < ends_at]
    done = sum(counted_from <= read.done < ends_at for read in reads)
    seconds = window.counted_seconds
    return Outcome(
        trial,
        done / seconds,
        tuple((read.done - read.due) * 1000 for read in counted),
        _percent(counted, Served.WAITED),
        _percent(counted, Served.STALE),
        dict(reader.failures),
        (after.loads - before.loads) / seconds,
        (after.busy_seconds - before.busy_seconds) / seconds,
    )


async def _traffic(reader: TrialReader, draws: Iterator[int], ends_at: float) -> list[Read]:
    """Read until ``ends_at`` (monotonic seconds), and return all reads, even those that end later."""
    trial = reader.setup.trial
    if not trial.point.rate:
        return await _closed_loop(reader, draws, ends_at)
    return await _open_loop(reader, draws, (gap / trial.point.rate for gap in _gaps(trial)), ends_at)


def _ages(reader: TrialReader, rates: NDArray[np.float64]) -> Sequence[float]:
    setup = reader.setup
    rng = np.random.default_rng([setup.trial.seed, 2])
    betas = np.array([setup.beta(number) for number in range(len(setup.keys))])
    ages = remaining_seconds(rng, setup.trial.point.ttl_seconds, betas * setup.delta_seconds, rates)
    return [float(seconds) for seconds in ages]


def _draws(trial: Trial, of_each: NDArray[np.float64]) -> Iterator[int]:
    """Yield keys, which are the same for all candidates at a point."""
    rng = np.random.default_rng([trial.seed, 3])
    while True:
        yield from rng.choice(len(of_each), size=_BLOCK, p=of_each).tolist()


def _gaps(trial: Trial) -> Iterator[float]:
    rng = np.random.default_rng([trial.seed, 4])
    while True:
        yield from rng.exponential(size=_BLOCK).tolist()


async def _observe(reader: TrialReader, at: float) -> OriginLoad:
    """Return the loads up to a moment (monotonic seconds)."""
    await asyncio.sleep(at - time.monotonic())
    return await reader.origin_load()


def _percent(reads: Sequence[Read], served: Served) -> float:
    return 100 * sum(read.served is served for read in reads) / len(reads) if reads else math.nan
