"""Reads as they come: a closed loop of clients, or an open loop at a rate."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from api_client.protocol.clock import monotonic_seconds
from benchmarks.cancellation import raise_if_cancelled
from benchmarks.topology.cell_reader import Served

if TYPE_CHECKING:
    from benchmarks.topology.levels import Load

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
