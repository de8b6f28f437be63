"""More load than the workers can carry, on real processes: the window for stale refreshes, and first in, first out."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

from rich.console import Console

from benchmarks.reports.charts import Plot, Series
from benchmarks.reports.results import Result, Table, figure
from benchmarks.simulate.engine.model import Model
from benchmarks.simulate.engine.simulation import simulate
from benchmarks.simulate.engine.state import Amount
from benchmarks.simulate.options import SimulateOptions
from benchmarks.simulate.real.processes import ANSWER_SECONDS, Observed, Plant, Readers, sleep_until, world
from benchmarks.simulate.results import fifo_figure, settled
from benchmarks.simulate.scenarios import OVERLOAD, QUEUES, loading

LOADS: Final = (0.5, 1.0, 1.5, OVERLOAD, 3.0)
"""Need of the keys, as a share of what the workers can."""
_SECONDS: Final = 120
_QUICK_SECONDS: Final = 20
_TITLE: Final = "more load than the workers can carry, on real processes"
_COLUMNS: Final = (
    "load_%", "queue", "reads", "stale_%", "stale_simulated_%", "waited_%", "waited_simulated_%", "loads_per_s",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Measured:
    """Observations of the second half of a run, and the simulation of the same model."""

    load: float
    queue: str
    seen: Observed
    loads_per_second: float
    simulated_stale: float
    simulated_waiting: float

    @property
    def stale_share(self) -> float:
        return float(self.seen.stale.sum() / self.seen.reads.sum())

    @property
    def waited_share(self) -> float:
        return float(self.seen.waited.sum() / self.seen.reads.sum())


def overloaded(options: SimulateOptions, console: Console, versions: dict[str, str]) -> Result:
    """Measure the stale share at several loads, with the window and first in, first out, each on servers of its own."""
    # The queue is short beside the keys, as in the simulation.
    model = replace(world(options, keys=1_500), queue_size=20, seconds=_QUICK_SECONDS if options.quick else _SECONDS)
    loads = (OVERLOAD,) if options.quick else LOADS
    console.print(f"{2 * len(loads)} real runs of {model.seconds} s …", style="dim")
    found = [_measured(loading(model, load), load, queue, versions) for load in loads for queue in QUEUES]
    window, fifo = (next(one for one in found if (one.load, one.queue) == (OVERLOAD, queue)) for queue in QUEUES)
    late = max(one.seen.delayed_share for one in found)
    figures = [
        fifo_figure(window.stale_share, fifo.stale_share),
        figure("reads that waited or failed at twice the load", (100 * window.waited_share,), "%"),
        figure("reads that began 250 ms late or later, at most", (100 * late,), "%"),
    ]
    return Result("real-overload", _TITLE, figures, tables=[_table(found)], charts=[_plot(found)])


def _measured(model: Model, load: float, queue: str, versions: dict[str, str]) -> _Measured:
    half = model.seconds // 2
    if queue != QUEUES[0]:
        model = replace(model, overloaded_after=math.inf)
    with ExitStack() as stack:
        plant = Plant(stack, model, versions)
        readers = Readers(model, plant.servers, model.seconds, settings={"queue_size": model.queue_size})
        stack.enter_context(readers)
        begins = readers.begin()
        sleep_until(begins + half)
        loaded_before = plant.loads()
        sleep_until(begins + model.seconds)
        loads = plant.loads() - loaded_before
        observed = readers.observed(ANSWER_SECONDS + begins + model.seconds - time.monotonic())
    simulated = settled(simulate(model))
    return _Measured(
        load, queue, observed.since(half), loads / (model.seconds - half),
        simulated.stale_share, simulated.share(Amount.WAITING_READS),
    )  # fmt: skip


def _table(found: Sequence[_Measured]) -> Table:
    rows = [
        (
            100 * one.load, one.queue, int(one.seen.reads.sum()), 100 * one.stale_share, 100 * one.simulated_stale,
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
