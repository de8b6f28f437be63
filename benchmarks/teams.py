"""The same read, many at once: a team of threads or of tasks, timed from their common start to the last one's end."""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice

from benchmarks.payloads import Value


class Team(ABC):
    """A number of readers, each with its share of the numbers, read over and over."""

    @abstractmethod
    async def run(self, reads: int) -> float:
        """Let everyone make so many reads, and return how long that took, in seconds."""


class ThreadTeam(Team):
    """Threads; one reads on the calling thread. They live as long as the team, as those of a server would."""

    def __init__(self, read: Callable[[int], Value], numbers: Sequence[int], size: int) -> None:
        self._read, self._shares = read, _shares(numbers, size)
        self._pool = ThreadPoolExecutor(size)
        self._start = threading.Barrier(size)

    async def run(self, reads: int) -> float:
        """Read on all threads at once; the event loop stands still meanwhile."""
        if len(self._shares) == 1:
            return self._run_one(self._shares[0], reads)
        spans = list(self._pool.map(lambda share: self._run_with_others(share, reads), self._shares))
        return max(end for _, end in spans) - min(begin for begin, _ in spans)

    def close(self) -> None:
        """End the threads."""
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


class TaskTeam(Team):
    """Tasks of the running event loop; one runs as the calling task."""

    def __init__(self, read: Callable[[int], Awaitable[Value]], numbers: Sequence[int], size: int) -> None:
        self._read, self._shares = read, _shares(numbers, size)

    async def run(self, reads: int) -> float:
        """Read in all tasks at once."""
        begin = time.perf_counter()
        if len(self._shares) == 1:
            await self._run_one(self._shares[0], reads)
        else:
            tasks = [asyncio.create_task(self._run_one(share, reads)) for share in self._shares]
            try:
                await asyncio.gather(*tasks)
            finally:
                await asyncio.wait(tasks)  # when one has failed, or all are cancelled: the cache is closed next
        return time.perf_counter() - begin

    async def _run_one(self, share: Sequence[int], reads: int) -> None:
        read = self._read
        for number in islice(cycle(share), reads):
            await read(number)


def _shares(numbers: Sequence[int], size: int) -> list[Sequence[int]]:
    """Deal the numbers out; where there are fewer than readers, all read the same."""
    return [numbers[index::size] if len(numbers) >= size else numbers for index in range(size)]
