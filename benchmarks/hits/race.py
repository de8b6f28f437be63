"""Races: competitors take turns, each read by a group of threads, or of tasks on one event loop."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any, Final, TypeAlias, cast

from benchmarks.apparatus.loops import await_if_needed, raise_if_cancelled
from benchmarks.apparatus.servers import Servers
from benchmarks.apparatus.statistics import Tally, turns
from benchmarks.competitors.competitor import Competitor, Dataset, Opened
from benchmarks.errors import BenchError
from benchmarks.hits.options import HitsOptions

_FIRST_TRY_READS: Final = 20
_LOCAL_READS: Final = 500
_MAX_READS: Final = 1_000_000
_TOLERATED_SHARE: Final = 0.02


class ThreadReaderGroup:
    """Threads that each read their share of the numbers over and over; one of them is the calling thread.

    They live as long as the group, like those of a server.
    """

    def __init__(self, read: Callable[[int], Any], numbers: Sequence[int], size: int) -> None:
        self._read, self._shares = read, _shares(numbers, size)
        self._pool = ThreadPoolExecutor(size)
        self._start = threading.Barrier(size)

    async def run(self, reads: int) -> float:
        """Let each thread make this many reads, and return the duration (s); the event loop is blocked."""
        if len(self._shares) == 1:
            return self._run_one(self._shares[0], reads)
        spans = list(self._pool.map(lambda share: self._run_with_others(share, reads), self._shares))
        return max(end for _, end in spans) - min(begin for begin, _ in spans)

    def close(self) -> None:
        self._pool.shutdown()

    def _run_with_others(self, share: Sequence[int], reads: int) -> tuple[float, float]:
        self._start.wait()
        begin = time.perf_counter()
        return begin, begin + self._run_one(share, reads)

    def _run_one(self, share: Sequence[int], reads: int) -> float:
        read = self._read
        begin = time.perf_counter()
        for number in islice(cycle(share), reads):
            read(number)
        return time.perf_counter() - begin


class TaskReaderGroup:
    """Tasks of the running event loop that read like `ThreadReaderGroup`; one of them is the calling task."""

    def __init__(self, read: Callable[[int], Any], numbers: Sequence[int], size: int) -> None:
        self._read, self._shares = read, _shares(numbers, size)

    async def run(self, reads: int) -> float:
        """Let each task make this many reads, and return the duration in seconds."""
        begin = time.perf_counter()
        if len(self._shares) == 1:
            await self._run_one(self._shares[0], reads)
        else:
            tasks = [asyncio.create_task(self._run_one(share, reads)) for share in self._shares]
            try:
                await asyncio.gather(*tasks)
            finally:
                await asyncio.wait(tasks)  # if one has failed, or all are cancelled, since the cache is closed next
        return time.perf_counter() - begin

    def close(self) -> None:
        pass

    async def _run_one(self, share: Sequence[int], reads: int) -> None:
        read = self._read
        for number in islice(cycle(share), reads):
            await read(number)


ReaderGroup: TypeAlias = ThreadReaderGroup | TaskReaderGroup


def _shares(numbers: Sequence[int], size: int) -> list[Sequence[int]]:
    """Deal out the numbers; if there are fewer than readers, all read the same."""
    return [numbers[index::size] if len(numbers) >= size else numbers for index in range(size)]


@dataclass(slots=True)
class Race:
    """Outcome of a race. ``left_out`` (the reason) and ``notes`` are by competitor."""

    tally: Tally = field(default_factory=Tally)
    left_out: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def leave_out(self, name: str, error: Exception) -> None:
        """Leave a competitor out from now on, with its earlier results."""
        self.left_out[name] = f"{type(error).__name__}: {error}"[:200]

    def seconds_per_read(self, name: str) -> list[float]:
        """Return the seconds per read of each round; none for a competitor that was left out."""
        return [] if name in self.left_out else self.tally.seconds_per_read(name)

    def speed_ratios(self, name: str, other: str) -> list[float]:
        """Return the speed of ``name`` as a multiple of that of ``other`` in each round; none if one did not run."""
        if name in self.left_out or other in self.left_out:
            return []
        return self.tally.speed_ratios(name, other)


def run_race(
    competitors: Sequence[Competitor], dataset: Dataset, options: HitsOptions, *, concurrency: int = 1,
    one_key: bool = False,
) -> Race:  # fmt: skip
    """Open the competitors, check their reads, and time them turn by turn.

    ``concurrency`` is the number of threads or tasks of each; with ``one_key`` all of them read the same key.
    """
    numbers = dataset.numbers[:1] if one_key else dataset.numbers
    return asyncio.run(_race(competitors, dataset, numbers, options, concurrency))


async def _race(
    competitors: Sequence[Competitor], dataset: Dataset, numbers: Sequence[int], options: HitsOptions, concurrency: int
) -> Race:
    race, scale = Race(), options.scale
    async with AsyncExitStack() as stack:
        groups: dict[str, ReaderGroup] = {}
        reads: dict[str, int] = {}
        for one in competitors:
            raise_if_cancelled()
            try:
                opened = await await_if_needed(one.opened(dataset, stack))
                race.notes[one.title] = opened.note
                await _check(opened, numbers)
                group = (TaskReaderGroup if one.is_async else ThreadReaderGroup)(opened.read, numbers, concurrency)
                stack.callback(group.close)
                if one.is_local:
                    await _check_local(dataset.servers, group)
                reads[one.title] = await _calibrated(group, scale.slice_seconds)
            except Exception as error:  # noqa: BLE001 - competitors are others' code; the rest of them still runs
                race.leave_out(one.title, error)
            else:
                groups[one.title] = group
        order = random.Random(options.seed)  # noqa: S311 - no secret
        for turn in turns(list(groups), rounds=scale.rounds, slices=scale.slices, rng=order):
            raise_if_cancelled()
            if turn.name in race.left_out:
                continue
            try:
                seconds = await groups[turn.name].run(reads[turn.name])
            except Exception as error:  # noqa: BLE001 - the minutes that the others have run are not thrown away
                race.leave_out(turn.name, error)
            else:
                race.tally.add(turn, reads[turn.name] * concurrency, seconds)
    return race


async def _check(opened: Opened, numbers: Sequence[int]) -> None:
    """Check that a competitor reads the stored values, before it is timed."""
    for number in [*numbers, *numbers]:
        found = await await_if_needed(opened.read(number))
        if found != opened.expected(number):
            raise BenchError(f"it read {str(found)[:60]!r} under number {number}, which is wrong")


async def _check_local(servers: Servers, group: ReaderGroup) -> None:
    """Check that local hits are local, since a bypassed tier would falsify the measurement."""
    await group.run(_FIRST_TRY_READS)
    before = _gets(servers)
    await group.run(_LOCAL_READS)
    share = (_gets(servers) - before) / _LOCAL_READS
    if share > _TOLERATED_SHARE:
        raise BenchError(f"{share:.0%} of its reads reached Redis: they are not local")


def _gets(servers: Servers) -> int:
    with servers.plain() as client:
        stats = cast("dict[str, Any]", client.info("commandstats"))
    return sum(stats[name]["calls"] for name in ("cmdstat_get", "cmdstat_mget") if name in stats)


async def _calibrated(group: ReaderGroup, slice_seconds: float) -> int:
    """Return the number of reads of each thread or task in a turn of about ``slice_seconds``."""
    count = _FIRST_TRY_READS
    for _ in range(3):
        count = max(1, min(_MAX_READS, int(count * slice_seconds / await group.run(count))))
    return count
