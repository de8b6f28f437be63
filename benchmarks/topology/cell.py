"""One cell: its keys are put, traffic runs, and what came of it is counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.cancellation import raise_if_cancelled
from benchmarks.statistics import percentile
from benchmarks.topology.cell_reader import CellReader, Lead, Served
from benchmarks.topology.levels import Cell
from benchmarks.topology.origin_load import OriginLoad
from benchmarks.topology.steady import remaining_seconds
from benchmarks.topology.traffic import Read, run_traffic
from benchmarks.topology.world import shares

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BLOCK: Final = 4_096


@dataclass(frozen=True, slots=True)
class Window:
    """How long a cell runs before it counts, and while it does, s."""

    warm_up_seconds: float
    counted_seconds: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one cell came to; all of the time in which it counted.

    Attributes:
        cell: which.
        reads_per_second: reads done.
        times_ms: of each read, from when it was due.
        waited, stale: shares of the reads: those that waited for a load, and those that got a stale value at once.
        failures: errors of reads, by name.
        recomputes_per_second: loads of the graph.
        origin_busy: seconds a second that the graph spent on them, pauses left out.
        leads: the early refreshes.
        early_per_second: how many of them.
    """

    cell: Cell
    reads_per_second: float
    times_ms: tuple[float, ...]
    waited: float
    stale: float
    failures: dict[str, int]
    recomputes_per_second: float
    origin_busy: float
    leads: tuple[Lead, ...]
    early_per_second: float

    def percentile_ms(self, percent: float) -> float:
        """Return a percentile of the reads' times."""
        return percentile(self.times_ms, percent)


async def run_cell(reader: CellReader, window: Window, expected_reads_per_second: float) -> Outcome:
    """Run a cell.

    Args:
        reader: with the cell's scene.
        window: how long.
        expected_reads_per_second: of all keys together, near enough: from it follows how old entries are at the start.
    """
    cell, keys = reader.scene.cell, list(reader.scene.keys)
    of_each = shares(keys, cell.point.skew)
    await reader.put(_ages(reader, of_each * expected_reads_per_second))
    raise_if_cancelled()
    counted_from = time.monotonic() + window.warm_up_seconds
    ends_at = counted_from + window.counted_seconds
    try:
        reads, before, after = await asyncio.gather(
            run_traffic(reader.read_and_count, _draws(cell, of_each), _gaps(cell), cell.point.load, ends_at),
            _looked(reader, counted_from),
            _looked(reader, ends_at),
        )
    finally:
        await reader.clear()  # also when it is interrupted: what goes on would find its connections closed
    raise_if_cancelled()
    counted = [read for read in reads if counted_from <= read.due < ends_at]
    done = sum(counted_from <= read.done < ends_at for read in reads)
    load, leads = after[0].since(before[0]), reader.leads[before[1] : after[1]]
    return Outcome(
        cell,
        done / window.counted_seconds,
        tuple((read.done - read.due) * 1000 for read in counted),
        _share(counted, Served.WAITED),
        _share(counted, Served.STALE),
        dict(reader.failures),
        load.loads / window.counted_seconds,
        load.busy_seconds / window.counted_seconds,
        tuple(leads),
        len(leads) / window.counted_seconds,
    )


def _ages(reader: CellReader, rates: NDArray[np.float64]) -> Sequence[float]:
    scene = reader.scene
    drawn = remaining_seconds(
        np.random.default_rng([scene.cell.seed, 2]),
        ttl_seconds=scene.cell.point.ttl_seconds,
        beta_deltas=np.array([scene.beta(number) for number in range(len(scene.keys))]) * scene.delta_seconds,
        rates=rates,
    )
    return [float(seconds) for seconds in drawn]


def _draws(cell: Cell, of_each: NDArray[np.float64]) -> Iterator[int]:
    """Yield keys: the same ones for all who are compared at a point."""
    rng = np.random.default_rng([cell.seed, 3])
    while True:
        yield from rng.choice(len(of_each), size=_BLOCK, p=of_each).tolist()


def _gaps(cell: Cell) -> Iterator[float]:
    rng = np.random.default_rng([cell.seed, 4])
    while True:
        yield from rng.exponential(size=_BLOCK).tolist()


async def _looked(reader: CellReader, at: float) -> tuple[OriginLoad, int]:
    """Return what has been loaded, and how many early refreshes there were, at a moment (monotonic seconds)."""
    await asyncio.sleep(at - time.monotonic())
    return await reader.origin_load(), len(reader.leads)


def _share(reads: Sequence[Read], served: Served) -> float:
    return sum(read.served is served for read in reads) / len(reads) if reads else float("nan")
