"""Overload on real processes, with the window for stale refreshes, and with first in, first out."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple

import numpy as np
from rich.console import Console

from api_client import AsyncCacheClient, CacheError, EntryState
from api_client.trigger import backpressure
from benchmarks.apparatus.processes import Child, end_children, replies, start_child
from benchmarks.apparatus.servers import Servers, running_servers
from benchmarks.apparatus.workers import refresh_worker
from benchmarks.reports.charts import Plot, Series
from benchmarks.reports.results import Result, Table, figure
from benchmarks.simulate import real_queries as queries
from benchmarks.simulate.engine.model import Costs, Model, rates_and_degrees
from benchmarks.simulate.engine.simulation import simulate
from benchmarks.simulate.engine.state import Amount
from benchmarks.simulate.options import Popularity, SimulateOptions
from benchmarks.simulate.results import fifo_figure, settled
from benchmarks.simulate.scenarios import OVERLOAD, QUEUES, loading
from refresher.embedded import ArcadeDbServer

LOADS: Final = (0.5, 1.0, 1.5, OVERLOAD, 3.0)
"""Needs of the keys, as multiples of the workers' capacity."""
_SECONDS: Final = 120
_QUICK_SECONDS: Final = 20
_ANSWER_SECONDS: Final = 60.0
_AHEAD_SECONDS: Final = 1.0
_LATE_SECONDS: Final = 0.25
_TITLE: Final = "more load than the workers can carry, on real processes"
_COLUMNS: Final = (
    "load_%", "queue", "reads", "stale_%", "stale_simulated_%", "waited_%", "waited_simulated_%", "loads_per_s",
)  # fmt: skip


@dataclass(slots=True)
class Observed:
    """Reads of the second half of a run, with those that got a stale value, waited or failed, or began late."""

    reads: int = 0
    stale: int = 0
    waited: int = 0
    late: int = 0


class _Measured(NamedTuple):
    """Observations of a run, and the simulation of the same model."""

    load: float
    queue: str
    reads: int
    stale_share: float
    waited_share: float
    late_share: float
    loads_per_second: float
    simulated_stale: float
    simulated_waiting: float


def overloaded(options: SimulateOptions, console: Console, versions: dict[str, str]) -> Result:
    """Measure the stale share at several loads, with the window and first in, first out, each on its own servers."""
    # Within the capacity of two cores, as workers and loads mostly sleep. As in the simulation, the queue is short
    # compared with the number of keys.
    model = Model(
        keys=1_500, reads_per_second=500.0, readers=2, workers=6, ttl=10.0, grace=600.0, load=0.1, queue_size=20,
        seconds=_QUICK_SECONDS if options.quick else _SECONDS, popularity=Popularity.ZIPF, min_ttl=1.0,
        costs=Costs(overhead=0.01), seed=options.seed,
    )  # fmt: skip
    loads = (OVERLOAD,) if options.quick else LOADS
    console.print(f"{2 * len(loads)} real runs of {model.seconds} s …", style="dim")
    found = [_measured(loading(model, load), load, queue, versions) for load in loads for queue in QUEUES]
    window, fifo = (next(one for one in found if (one.load, one.queue) == (OVERLOAD, queue)) for queue in QUEUES)
    figures = [
        fifo_figure(window.stale_share, fifo.stale_share),
        figure("reads that waited or failed at twice the load", (100 * window.waited_share,), "%"),
        figure("reads that began 250 ms late or later, at most", (100 * max(one.late_share for one in found),), "%"),
    ]
    return Result("real-overload", _TITLE, figures, tables=[_table(found)], charts=[_plot(found)])


def _measured(model: Model, load: float, queue: str, versions: dict[str, str]) -> _Measured:
    half = model.seconds // 2
    if queue != QUEUES[0]:
        model = replace(model, overloaded_after=math.inf)
    with ExitStack() as stack:
        servers = stack.enter_context(running_servers())
        versions |= servers.versions
        graph = stack.enter_context(ArcadeDbServer.start())
        stack.enter_context(refresh_worker(servers, graph.environ, queries.__name__, _environ(model)))
        control = stack.enter_context(servers.control())
        children: list[Child] = []
        stack.callback(end_children, children)
        for number in range(model.readers):
            children.append(start_child(run_readers, model, servers, number))  # noqa: PERF401 - one may fail
        replies(children, _ANSWER_SECONDS)
        begins = time.monotonic() + _AHEAD_SECONDS
        for child in children:
            child.pipe.send(begins)
        time.sleep(begins + half - time.monotonic())
        loaded_before = _count(control)
        time.sleep(begins + model.seconds - time.monotonic())
        loads = _count(control) - loaded_before
        seen: list[Observed] = replies(children, _ANSWER_SECONDS)
    simulated = settled(simulate(model))
    reads = sum(one.reads for one in seen)
    stale, waited, late = (sum(getattr(one, what) for one in seen) / reads for what in ("stale", "waited", "late"))
    return _Measured(
        load, queue, reads, stale, waited, late,
        loads / (model.seconds - half), simulated.stale_share, simulated.share(Amount.WAITING_READS),
    )  # fmt: skip


def _count(control: Any) -> int:
    return int(control.get(queries.LOADS) or 0)


def _environ(model: Model) -> dict[str, str]:
    return {
        queries.LOAD: repr(model.load),
        queries.TTL: repr(model.ttl),
        queries.GRACE: repr(model.grace),
        "CACHE_XFETCH_MIN_TTL": repr(model.min_ttl),
        "CACHE_XFETCH_WORKERS": str(model.workers),
    }


def run_readers(pipe: Connection, model: Model, servers: Servers, number: int) -> None:
    """Read as one reader process, once."""
    backpressure.OVERLOADED_SECONDS = model.overloaded_after  # type: ignore[misc] # only in this process
    asyncio.run(_read_all(pipe, model, servers, number))


async def _read_all(pipe: Connection, model: Model, servers: Servers, number: int) -> None:
    observed = Observed()
    settings = servers.settings(redis_timeout_seconds=5.0, queue_size=model.queue_size)
    async with AsyncCacheClient(settings) as client:
        pipe.send("ready")
        begins = float(await asyncio.to_thread(pipe.recv))
        async with asyncio.TaskGroup() as tasks:
            for at, key in _moments(model, number):
                await asyncio.sleep(max(0.0, begins + at - time.monotonic()))
                is_late = time.monotonic() - begins - at > _LATE_SECONDS
                tasks.create_task(_read(client, key, observed if at >= model.seconds // 2 else Observed(), is_late))
    pipe.send(observed)


def _moments(model: Model, number: int) -> Iterator[tuple[float, int]]:
    """Yield the times and keys of reads, a Poisson process."""
    rng = np.random.default_rng(model.seed + number)
    summed = np.cumsum(rates_and_degrees(model)[0].astype(np.float64) / model.readers)
    total, at = float(summed[-1]), 0.0
    while (at := at + float(rng.exponential(1 / total))) < model.seconds:
        yield at, min(int(np.searchsorted(summed, rng.random() * total, side="right")), len(summed) - 1)


async def _read(client: AsyncCacheClient, key: int, observed: Observed, is_late: bool) -> None:  # noqa: FBT001
    try:
        state = (await client.get_entry(queries.QUERY, {"number": key})).state
    except CacheError:
        state = EntryState.MISS
    observed.reads += 1
    observed.late += is_late
    observed.stale += state is EntryState.STALE
    observed.waited += state is EntryState.MISS


def _table(found: Sequence[_Measured]) -> Table:
    rows = [
        (
            100 * one.load, one.queue, one.reads, 100 * one.stale_share, 100 * one.simulated_stale,
            100 * one.waited_share, 100 * one.simulated_waiting, one.loads_per_second,
        )
        for one in found
    ]  # fmt: skip
    return Table(_TITLE, _COLUMNS, rows)


def _plot(found: Sequence[_Measured]) -> Plot:
    def series(label: str, queue: str) -> Series:
        of_it = [one for one in found if one.queue == queue]
        return Series(label, tuple(one.load for one in of_it), tuple(100 * one.stale_share for one in of_it))

    window, fifo = QUEUES
    return Plot(
        "real-overload-stale-share", "real processes under overload: stale share against load",
        "load (× what the workers can carry)", "reads served stale (%)",
        (series("with the window", window), series(fifo, fifo)),
        caption="In the second half of each run, of a minute.", ours=("with the window",),
    )  # fmt: skip
