"""The triggers of `recovery` on real processes, one after the other."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.reports.results import Result, figure
from benchmarks.simulate.charts import recovery_figures, recovery_plot, recovery_table
from benchmarks.simulate.model import Costs, Model
from benchmarks.simulate.options import Popularity, SimulateOptions
from benchmarks.simulate.real_processes import ANSWER_SECONDS, Observed, Plant, Readers, reader_jobs, sleep_until
from benchmarks.simulate.recovery import (
    BROKER,
    FLUSH,
    KILLED,
    MEAN_SECONDS,
    SLOW,
    SLOW_TIMES,
    SPIKE,
    SPIKE_TIMES,
    TOLERANCE,
    TRIGGERS,
    Recovered,
    Trigger,
    recovery,
)
from benchmarks.simulate.scenarios import loading

if TYPE_CHECKING:
    from rich.console import Console

LOADS: Final = (0.4, 0.6, 0.8)
_CALM_SECONDS: Final = 15
_WATCHED_LENGTHS: Final = 2.2
_MIN_WATCHED_SECONDS: Final = 20
_QUICK_SECONDS: Final = 4
_QUICK_BEGINS: Final = (5, 18)
_COSTS: Final = Costs(overhead=0.01)
_DEVIATIONS: Final = 3
_EXACT_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class _Applied:
    """A trigger, and when it begins and ends, in seconds from the begin; for how long reads are counted about it."""

    trigger: Trigger
    begins: int
    ends: int
    calm: int
    watched: int


def _begin(plant: Plant, trigger: Trigger) -> None:
    """Apply a trigger; readers know of a spike themselves."""
    if trigger.name == FLUSH.name:
        plant.lose_all()
    elif trigger.name == SLOW.name:
        plant.slow_down(SLOW_TIMES)
    elif trigger.name == KILLED.name:
        plant.worker.kill()
    elif trigger.name == BROKER.name:
        plant.broker.kill()


def _end(plant: Plant, trigger: Trigger) -> None:
    """Take it away.

    Raises:
        BenchError: the worker did not start.
        EmbeddedServerError: the broker did not start.
    """
    if trigger.name == SLOW.name:
        plant.slow_down(1)
    elif trigger.name == KILLED.name:
        plant.start_worker()
    elif trigger.name == BROKER.name:
        plant.broker.restart(keep_data=False)


def recovered(
    load: float, options: SimulateOptions, console: Console, versions: dict[str, str], found: list[Recovered]
) -> Result:
    """Apply the triggers at a load, one after the other, and measure how reads recover.

    Args:
        load: what the keys need, as a share of what the workers can.
        options: of the run.
        console: is told how long it takes.
        versions: receives those of the servers.
        found: receives how reads recovered.

    Raises:
        EmbeddedServerError: a server did not start.
        BenchError: the worker did not start, or the readers failed.
    """
    model = loading(_world(options), load)
    plan = _plan(model, is_quick=options.quick)
    seconds = plan[-1].ends + plan[-1].watched
    console.print(f"a real run of {seconds} s …", style="dim")
    spikes = tuple((one.begins, one.ends) for one in plan if one.trigger.name == SPIKE.name)
    with ExitStack() as stack:
        plant = Plant(stack, model, versions)
        jobs = reader_jobs(model, plant.servers, seconds, spikes=spikes, spike_times=SPIKE_TIMES)
        readers = stack.enter_context(Readers(jobs))
        begins = readers.begin()
        applied = [_apply(plant, one, begins) for one in plan]
        observed = readers.observed(ANSWER_SECONDS + begins + seconds - time.monotonic())
    here = [_recovered(one, load, model, observed) for one in applied]
    found += here
    figures = [figure("reads that began 250 ms late or later", (100 * observed.delayed_share,), "%")]
    title = f"real processes at {load:.0%} of what they can carry"
    return Result(f"real-recovery-{100 * load:.0f}", title, figures, tables=[recovery_table(title, here)])


def all_recovered(found: Sequence[Recovered]) -> Result:
    """Return the times to recover at all loads that were measured."""
    plot = recovery_plot("real-recovery", "real processes", found)
    return Result("real-recovery", "something goes wrong, and is over", recovery_figures(found), charts=[plot])


def _world(options: SimulateOptions) -> Model:
    """Return a model that two cores can hold: workers and loads mostly sleep."""
    return Model(
        keys=300, reads_per_second=500.0, readers=2, workers=6, seconds=0, ttl=10.0, grace=600.0, load=0.1,
        beta=options.beta, mode=options.mode, popularity=Popularity.ZIPF, min_ttl=1.0, costs=_COSTS, seed=options.seed,
    )  # fmt: skip


def _plan(model: Model, *, is_quick: bool) -> list[_Applied]:
    plan: list[_Applied] = []
    if is_quick:
        for begins, trigger in zip(_QUICK_BEGINS, (FLUSH, replace(KILLED, seconds=_QUICK_SECONDS)), strict=True):
            plan.append(_Applied(trigger, begins, begins + trigger.seconds, _QUICK_SECONDS, 2 * _QUICK_SECONDS))
        return plan
    at = int(2 * model.ttl)
    for trigger in TRIGGERS:
        begins = at + _CALM_SECONDS
        watched = max(_MIN_WATCHED_SECONDS, math.ceil(_WATCHED_LENGTHS * trigger.length(model)))
        plan.append(_Applied(trigger, begins, begins + trigger.seconds, _CALM_SECONDS, watched))
        at = plan[-1].ends + watched
    return plan


def _apply(plant: Plant, one: _Applied, begins: float) -> _Applied:
    """Apply a trigger when it is due; return it with the moment at which it was really over."""
    sleep_until(begins + one.begins)
    _begin(plant, one.trigger)
    sleep_until(begins + one.ends)
    _end(plant, one.trigger)
    return replace(one, ends=max(one.ends, math.ceil(time.monotonic() - begins - _EXACT_SECONDS)))


def _recovered(one: _Applied, load: float, model: Model, observed: Observed) -> Recovered:
    """Return how reads recovered from one trigger, within what was watched after it."""
    span = slice(one.begins - one.calm, one.ends + one.watched)
    reads, late = observed.reads[span], (observed.stale + observed.waited)[span]
    before = late[: one.calm].sum() / reads[: one.calm].sum()
    chance = _DEVIATIONS * math.sqrt(before * (1 - before) / (MEAN_SECONDS * model.reads_per_second))
    length = one.ends - one.begins if one.trigger.seconds else one.trigger.length(model)
    seen = recovery(late / np.maximum(reads, 1), one.calm, one.calm + one.ends - one.begins, TOLERANCE + chance)
    return Recovered(one.trigger.name, load, length, seen)
