"""More load than the workers can carry, on real processes: the window for stale refreshes, and first in, first out."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from benchmarks.reports.charts import Plot, Series
from benchmarks.reports.results import Result, Table, figure
from benchmarks.simulate.charts import MAX_OF_FIFO, settled
from benchmarks.simulate.model import Costs, Model
from benchmarks.simulate.options import Popularity, SimulateOptions
from benchmarks.simulate.real_processes import ANSWER_SECONDS, Observed, Plant, Readers, reader_jobs, sleep_until
from benchmarks.simulate.scenarios import OVERLOAD, QUEUES, loading
from benchmarks.simulate.simulation import simulate

if TYPE_CHECKING:
    from rich.console import Console

LOADS: Final = (0.5, 1.0, 1.5, OVERLOAD, 3.0)
"""Need of the keys, as a share of what the workers can."""
_QUICK_SECONDS: Final = 20
_COSTS: Final = Costs(overhead=0.01)
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
    """Measure the stale share at several loads, with the window and first in, first out, each on servers of its own.

    Args:
        options: of the run.
        console: is told how long it takes.
        versions: receives those of the servers.

    Raises:
        EmbeddedServerError: a server did not start.
        BenchError: the worker did not start, or the readers failed.
    """
    world, loads = _world(options), (OVERLOAD,) if options.quick else LOADS
    console.print(f"{2 * len(loads)} real runs of {world.seconds} s …", style="dim")
    found = [_measured(model, load, queue, versions) for load in loads for queue, model in _arms(world, load).items()]
    window, fifo = (next(one for one in found if (one.load, one.queue) == (OVERLOAD, queue)) for queue in QUEUES)
    late = max(one.seen.delayed_share for one in found)
    figures = [
        figure(
            "stale reads at twice the load, against first in, first out", (window.stale_share / fifo.stale_share,), "×",
            MAX_OF_FIFO, f"{window.stale_share:.1%} against {fifo.stale_share:.1%}",
        ),
        figure("reads that waited or failed at twice the load", (100 * window.waited_share,), "%"),
        figure("reads that began 250 ms late or later, at most", (100 * late,), "%"),
    ]  # fmt: skip
    return Result("real-overload", _TITLE, figures, tables=[_table(found)], charts=[_plot(found)])


def _world(options: SimulateOptions) -> Model:
    """Return a model that two cores can hold, with a queue that is short beside its keys, as in the simulation."""
    return Model(
        keys=1_500, reads_per_second=500.0, readers=2, workers=6, seconds=_QUICK_SECONDS if options.quick else 120,
        ttl=10.0, grace=600.0, load=0.1, beta=options.beta, mode=options.mode, popularity=Popularity.ZIPF, min_ttl=1.0,
        queue_size=20, costs=_COSTS, seed=options.seed,
    )  # fmt: skip


def _arms(world: Model, load: float) -> Mapping[str, Model]:
    model = loading(world, load)
    return dict(zip(QUEUES, (model, replace(model, overloaded_after=math.inf)), strict=True))


def _measured(model: Model, load: float, queue: str, versions: dict[str, str]) -> _Measured:
    half = model.seconds // 2
    with ExitStack() as stack:
        plant = Plant(stack, model, versions)
        jobs = reader_jobs(
            model, plant.servers, model.seconds,
            overloaded_after=model.overloaded_after, settings={"queue_size": model.queue_size},
        )  # fmt: skip
        readers = stack.enter_context(Readers(jobs))
        begins = readers.begin()
        sleep_until(begins + half)
        loaded_before = plant.loads()
        sleep_until(begins + model.seconds)
        loads = plant.loads() - loaded_before
        observed = readers.observed(ANSWER_SECONDS + begins + model.seconds - time.monotonic())
    simulated = settled(simulate(model))
    return _Measured(
        load, queue, observed.since(half), loads / (model.seconds - half),
        simulated.stale_share, simulated.waiting_share,
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
