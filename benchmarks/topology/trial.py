"""One trial: its keys are put as old as a long run leaves them, traffic runs, and the reads are counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from api_client.protocol.clock import monotonic_seconds
from benchmarks.apparatus.loops import raise_if_cancelled
from benchmarks.apparatus.statistics import percentile
from benchmarks.topology.model import shares
from benchmarks.topology.plan import Trial
from benchmarks.topology.queries import OriginLoad
from benchmarks.topology.reader import LeadTime, Served, TrialReader

if TYPE_CHECKING:
    from benchmarks.topology.plan import Load

ReadOne: TypeAlias = Callable[[int], Awaitable[Served]]


class Read(NamedTuple):
    """One read: when it was due and when it was done (monotonic, s), and how it was served."""

    due: float
    done: float
    served: Served


async def run_traffic(
    read: ReadOne,
    draws: Iterator[int],
    gaps: Iterator[float],
    load: Load,
    ends_at: float,
    *,
    monotonic: Callable[[], float] = monotonic_seconds,
) -> list[Read]:
    """Read until ``ends_at`` (monotonic seconds), and return all reads, also those that end later.

    Args:
        read: reads one key.
        draws: which key comes next.
        gaps: between two reads of an open loop at a rate of 1 a second, s: exponentially distributed.
        load: which loop.
        ends_at: no read begins after it.
        monotonic: the clock.
    """
    if load.clients:
        return await _closed_loop(read, draws, load.clients, ends_at, monotonic)
    return await _open_loop(read, draws, (gap / load.reads_per_second for gap in gaps), ends_at, monotonic)


async def _closed_loop(
    read: ReadOne, draws: Iterator[int], clients: int, ends_at: float, monotonic: Callable[[], float]
) -> list[Read]:
    reads: list[Read] = []

    async def client() -> None:
        while (began := monotonic()) < ends_at:
            raise_if_cancelled()
            served = await read(next(draws))
            reads.append(Read(began, monotonic(), served))

    await asyncio.gather(*[client() for _ in range(clients)])
    return reads


async def _open_loop(
    read: ReadOne, draws: Iterator[int], gaps: Iterator[float], ends_at: float, monotonic: Callable[[], float]
) -> list[Read]:
    """Begin each read when it is due, and count its time from then, however late this loop is.

    A loop that waited for slow reads would leave out the reads that those held up, and so the worst times.
    """
    reads: list[Read] = []

    async def one(due: float, number: int) -> None:
        served = await read(number)
        reads.append(Read(due, monotonic(), served))

    due = monotonic()
    async with asyncio.TaskGroup() as tasks:
        while (due := due + next(gaps)) < ends_at:
            if (ahead_seconds := due - monotonic()) > 0:
                await asyncio.sleep(ahead_seconds)
            tasks.create_task(one(due, next(draws)))
    return reads


if TYPE_CHECKING:
    from numpy.typing import NDArray


def remaining_seconds(
    rng: np.random.Generator,
    *,
    ttl_seconds: float,
    beta_deltas: NDArray[np.float64],
    rates: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Draw how long each key is fresh still; negative: since when it has been expired, and not read.

    A key read at rate λ (reads come as a Poisson process) is not refreshed before its expiry with probability
    q = exp(−λ·β·δ), and then waits 1/λ for its next read. Where it is refreshed early, it is about β·δ·ln(1 + λ·β·δ)
    before. What is near enough: the first tenths of a second, which don't count, do the rest.

    Args:
        rng: draws.
        ttl_seconds: of each entry.
        beta_deltas: β·δ of each key, s; 0 where nothing is refreshed early.
        rates: reads per second of each key, more than 0.
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


if TYPE_CHECKING:
    from numpy.typing import NDArray

_BLOCK: Final = 4_096


@dataclass(frozen=True, slots=True)
class Window:
    """Duration of a trial before it counts, and while it does; seconds."""

    warm_up_seconds: float
    counted_seconds: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one trial, of the time in which it counted.

    Attributes:
        trial: which.
        reads_per_second: reads done.
        times_ms: of each read, from when it was due.
        waited, stale: shares of the reads: those that waited for a load, and those that got a stale value at once.
        failures: errors of reads, by name.
        recomputes_per_second: loads of the graph.
        origin_busy: seconds a second that the graph spent on them, pauses left out.
        lead times: the early refreshes.
        early_per_second: how many of them.
    """

    trial: Trial
    reads_per_second: float
    times_ms: tuple[float, ...]
    waited: float
    stale: float
    failures: dict[str, int]
    recomputes_per_second: float
    origin_busy: float
    lead_times: tuple[LeadTime, ...]
    early_per_second: float

    def percentile_ms(self, percent: float) -> float:
        """Return a percentile of the reads' times."""
        return percentile(self.times_ms, percent)


async def run_trial(reader: TrialReader, window: Window, expected_reads_per_second: float) -> Outcome:
    """Run a trial.

    Args:
        reader: with the trial's setup.
        window: how long.
        expected_reads_per_second: of all keys together, near enough: from it follows how old entries are at the start.
    """
    trial, keys = reader.setup.trial, list(reader.setup.keys)
    of_each = shares(keys, trial.point.skew)
    await reader.put(_ages(reader, of_each * expected_reads_per_second))
    raise_if_cancelled()
    counted_from = time.monotonic() + window.warm_up_seconds
    ends_at = counted_from + window.counted_seconds
    try:
        reads, before, after = await asyncio.gather(
            run_traffic(reader.read_and_count, _draws(trial, of_each), _gaps(trial), trial.point.load, ends_at),
            _observe(reader, counted_from),
            _observe(reader, ends_at),
        )
    finally:
        await reader.clear()  # also when it is interrupted: what goes on would find its connections closed
    raise_if_cancelled()
    counted = [read for read in reads if counted_from <= read.due < ends_at]
    done = sum(counted_from <= read.done < ends_at for read in reads)
    load, lead_times = after[0].since(before[0]), reader.lead_times[before[1] : after[1]]
    return Outcome(
        trial,
        done / window.counted_seconds,
        tuple((read.done - read.due) * 1000 for read in counted),
        _share(counted, Served.WAITED),
        _share(counted, Served.STALE),
        dict(reader.failures),
        load.loads / window.counted_seconds,
        load.busy_seconds / window.counted_seconds,
        tuple(lead_times),
        len(lead_times) / window.counted_seconds,
    )


def _ages(reader: TrialReader, rates: NDArray[np.float64]) -> Sequence[float]:
    setup = reader.setup
    drawn = remaining_seconds(
        np.random.default_rng([setup.trial.seed, 2]),
        ttl_seconds=setup.trial.point.ttl_seconds,
        beta_deltas=np.array([setup.beta(number) for number in range(len(setup.keys))]) * setup.delta_seconds,
        rates=rates,
    )
    return [float(seconds) for seconds in drawn]


def _draws(trial: Trial, of_each: NDArray[np.float64]) -> Iterator[int]:
    """Yield keys: the same ones for all who are compared at a point."""
    rng = np.random.default_rng([trial.seed, 3])
    while True:
        yield from rng.choice(len(of_each), size=_BLOCK, p=of_each).tolist()


def _gaps(trial: Trial) -> Iterator[float]:
    rng = np.random.default_rng([trial.seed, 4])
    while True:
        yield from rng.exponential(size=_BLOCK).tolist()


async def _observe(reader: TrialReader, at: float) -> tuple[OriginLoad, int]:
    """Return what has been loaded, and how many early refreshes there were, at a moment (monotonic seconds)."""
    await asyncio.sleep(at - time.monotonic())
    return await reader.origin_load(), len(reader.lead_times)


def _share(reads: Sequence[Read], served: Served) -> float:
    return sum(read.served is served for read in reads) / len(reads) if reads else float("nan")
