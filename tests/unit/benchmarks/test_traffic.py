"""How `python -m benchmarks topology` reads: in a closed and in an open loop."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress
from itertools import chain, count, repeat

import pytest

from benchmarks.topology.cell_reader import Served
from benchmarks.topology.levels import Load
from benchmarks.topology.traffic import run_traffic


def test_a_closed_loop_has_as_many_reads_at_once_as_clients() -> None:
    at_once, most = 0, 0

    async def read(number: int) -> Served:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        return Served.FRESH

    ticks = count()
    reads = asyncio.run(
        run_traffic(read, repeat(1), repeat(1.0), Load(clients=3), 60, monotonic=lambda: float(next(ticks)))
    )
    assert most == 3
    assert len(reads) > 20
    assert all(one.done > one.due for one in reads)


def test_an_open_loop_waits_for_nobody() -> None:
    async def run() -> int:
        all_begun = asyncio.Event()
        begun: list[int] = []

        async def read(number: int) -> Served:
            begun.append(number)
            if len(begun) == 10:
                all_begun.set()
            await all_begun.wait()  # none is answered before the tenth has been asked
            return Served.FRESH

        ten = chain(repeat(1.0, 10), [1e9])
        load = Load(reads_per_second=1_000)
        return len(
            await asyncio.wait_for(run_traffic(read, repeat(1), ten, load, time.monotonic() + 3_600), 60)
        )  # fmt: skip

    assert asyncio.run(run()) == 10


def test_a_closed_loop_that_is_cancelled_ends_also_where_its_reads_keep_that_to_themselves() -> None:
    async def run() -> None:
        reading = asyncio.Event()

        async def read(number: int) -> Served:
            with suppress(asyncio.CancelledError):
                reading.set()
                await asyncio.sleep(0)
            return Served.FRESH

        traffic = asyncio.create_task(run_traffic(read, repeat(1), repeat(1.0), Load(clients=3), math.inf))
        await reading.wait()
        traffic.cancel()
        with pytest.raises(asyncio.CancelledError):
            await traffic

    asyncio.run(run())
