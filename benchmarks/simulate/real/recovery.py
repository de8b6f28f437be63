"""Triggers of `recovery` on real processes, one after the other."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from rich.console import Console

from benchmarks.reports.results import Result, figure
from benchmarks.simulate.engine.model import Model
from benchmarks.simulate.options import SimulateOptions
from benchmarks.simulate.real.processes import ANSWER_SECONDS, Observed, Plant, Readers, sleep_until, world
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
    recovery_figures,
    recovery_plot,
    recovery_table,
)
from benchmarks.simulate.scenarios import loading

LOADS: Final = (0.4, 0.6, 0.8)
_CALM_SECONDS: Final = 15
_WATCHED_LENGTHS: Final = 2.2
_MIN_WATCHED_SECONDS: Final = 20
_QUICK_SECONDS: Final = 4
_QUICK_BEGINS: Final = (5, 18)
_DEVIATIONS: Final = 3
_EXACT_SECONDS: Final = 0.5

# Readers know of a spike themselves.
_BEGIN: Final[Mapping[str, Callable[[Plant], object]]] = {
    SPIKE.name: lambda _: None,
    FLUSH.name: Plant.lose_all,
    SLOW.name: lambda plant: plant.slow_down(SLOW_TIMES),
    KILLED.name: lambda plant: plant.worker.kill(),
    BROKER.name: lambda plant: plant.broker.kill(),
}
_END: Final[Mapping[str, Callable[[Plant], object]]] = {
    SPIKE.name: lambda _: None,
    FLUSH.name: lambda _: None,
    SLOW.name: lambda plant: plant.slow_down(1),
    KILLED.name: Plant.start_worker,
    BROKER.name: lambda plant: plant.broker.restart(keep_data=False),
}


@dataclass(frozen=True, slots=True)
class _Applied:
    """A trigger, and when it begins and ends, in seconds from the begin; for how long reads are counted about it."""

    trigger: Trigger
    begins: int
    ends: int
    calm: int
    watched: int


def recovered(
    load: float, options: SimulateOptions, console: Console, versions: dict[str, str], found: list[Recovered]
) -> Result:
    """Apply the triggers at a load, one after the other, and measure how reads recover."""
    model = loading(world(options, keys=300), load)
    plan = _plan(model, is_quick=options.quick)
    seconds = plan[-1].ends + plan[-1].watched
    console.print(f"a real run of {seconds} s …", style="dim")
    spikes = tuple((one.begins, one.ends) for one in plan if one.trigger.name == SPIKE.name)
    with ExitStack() as stack:
        plant = Plant(stack, model, versions)
        readers = Readers(model, plant.servers, seconds, spikes=spikes, spike_times=SPIKE_TIMES)
        stack.enter_context(readers)
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
    _BEGIN[one.trigger.name](plant)
    sleep_until(begins + one.ends)
    _END[one.trigger.name](plant)
    return replace(one, ends=max(one.ends, math.ceil(time.monotonic() - begins - _EXACT_SECONDS)))


def _recovered(one: _Applied, load: float, model: Model, observed: Observed) -> Recovered:
    span = slice(one.begins - one.calm, one.ends + one.watched)
    reads, late = observed.reads[span], (observed.stale + observed.waited)[span]
    before = late[: one.calm].sum() / reads[: one.calm].sum()
    chance = _DEVIATIONS * math.sqrt(before * (1 - before) / (MEAN_SECONDS * model.reads_per_second))
    length = one.ends - one.begins if one.trigger.seconds else one.trigger.length(model)
    seen = recovery(late / np.maximum(reads, 1), one.calm, one.calm + one.ends - one.begins, TOLERANCE + chance)
    return Recovered(one.trigger.name, load, length, seen)
