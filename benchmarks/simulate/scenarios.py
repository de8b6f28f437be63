"""Scenarios, with the models that each one compares."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from benchmarks.simulate.engine.model import Fault, Model
from benchmarks.simulate.engine.simulation import load_of, steady_loads_per_second, workers_for
from benchmarks.simulate.options import Mode, Popularity, Scenario, SimulateOptions
from benchmarks.simulate.recovery import TRIGGERS

TITLES: Final[Mapping[Scenario, str]] = {
    Scenario.STEADY: "a steady load",
    Scenario.WORKER_OUTAGE: "all workers are killed, and come back later",
    Scenario.FLEET: "fleets of different sizes",
    Scenario.BETA: "β and TTL",
    Scenario.OVERLOAD: "more load than the fleet can carry",
    Scenario.RECOVERY: "something goes wrong, and is over",
    Scenario.FEED: "a long TTL with the change feed, against a short one without it",
}
FLEET_PART: Final = 10
"""Divisor of the model's size in each of a sweep's many runs."""
HOT_PART: Final = 1_000
HOTTER: Final = 100
"""Divisor of the number of keys for β, which is for popular keys, so that each is read this many times as often."""
_MIN_TTLS: Final = 3
BETAS: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
TTLS: Final = (60.0, 300.0, 1_800.0)
FLEET_SIZES: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)
GRACES: Final = (0.0, 60.0)
LOADED_PART: Final = 100
LOADED_TTL: Final = 600.0
OVERLOADED_TTLS: Final = 2
RECOVERY_HOTTER: Final = 10
QUEUES: Final = ("window", "first in, first out")
HEAVY_EVERY: Final = 10
HEAVY_TIMES: Final = 50.0
HEAVY: Final = f"one key in {HEAVY_EVERY} {HEAVY_TIMES:g} × as heavy"
WEIGHED: Final = ("weighed", "not weighed")
OVERLOAD: Final = 2.0
OVERLOADS: Final = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0)
RECOVERY_LOADS: Final = (0.2, 0.4, 0.6, 0.8, 0.9, 0.95)
FEED_TTLS: Final = {"feed, TTL 1 h": 3_600.0, "no feed, TTL 30 s": 30.0}
_WRITES: Final = (1 / 1_500, 1 / 300, 1 / 60)
"""Writes per second of each key: 0.02 to 0.5 in 30 s."""
_NOTICED_AFTER: Final = 0.05
_GRACE: Final = 3_600.0
_MIN_KEYS: Final = 1_000
_FAULT_FROM: Final = 0.25
_FAULT_UNTIL: Final = 0.45


def model_of(options: SimulateOptions) -> Model:
    """Return the model of the options, with as many workers as it needs unless a number was given."""
    model = Model(
        keys=options.keys, reads_per_second=options.reads_per_second, readers=options.readers,
        workers=options.workers or 1, seconds=options.seconds, ttl=options.ttl, grace=_GRACE, load=options.delta,
        seed=options.seed,
    )  # fmt: skip
    return model if options.workers else replace(model, workers=workers_for(model))


def models(scenario: Scenario, model: Model, *, quick: bool) -> dict[str, Model]:
    """Return the models of a scenario by name, in the order in which they run."""
    return _MODELS[scenario](model, quick)


def _smaller(model: Model, part: int) -> Model:
    """Return a model this many times smaller, of at least a thousand keys, with equal reads per key and utilisation."""
    keys = max(model.keys // part, min(model.keys, _MIN_KEYS))
    return replace(
        model,
        keys=keys,
        reads_per_second=model.reads_per_second * keys / model.keys,
        readers=max(1, model.readers * keys // model.keys),
        workers=max(1, model.workers * keys // model.keys),
    )


def _at_load(model: Model, load: float) -> Model:
    """Return the model with as many workers as make the steady load this share of their capacity."""
    return loading(replace(model, workers=max(1, round(load_of(replace(model, workers=1)) / load))), load)


def loading(model: Model, load: float) -> Model:
    """Return the model with a load time that makes the steady load this share of its workers' capacity."""
    beside = model.costs.overhead + model.costs.turnaround
    service = load * model.workers / steady_loads_per_second(model)
    return replace(model, load=(service - beside) / model.mean_times)


def _steady(model: Model, _: bool) -> dict[str, Model]:  # noqa: FBT001
    return {mode.value: replace(model, mode=mode) for mode in Mode}


def _worker_outage(model: Model, _: bool) -> dict[str, Model]:  # noqa: FBT001
    begins = int(model.seconds * _FAULT_FROM)
    broken = replace(model, fault=Fault(down=(begins, max(begins + 1, int(model.seconds * _FAULT_UNTIL)))))
    return {f"grace {grace:g} s": replace(broken, grace=grace) for grace in dict.fromkeys([*GRACES, model.grace])}


def _fleet(model: Model, quick: bool) -> dict[str, Model]:  # noqa: FBT001
    part = _smaller(model, FLEET_PART)
    return {f"{size} workers": replace(part, workers=size) for size in (FLEET_SIZES[:4] if quick else FLEET_SIZES)}


def _beta(model: Model, quick: bool) -> dict[str, Model]:  # noqa: FBT001
    found: dict[str, Model] = {}
    hot = _smaller(model, HOT_PART)
    hot = replace(hot, reads_per_second=hot.reads_per_second * HOTTER)
    for ttl in TTLS[:1] if quick else TTLS:
        of_ttl = replace(hot, ttl=ttl, seconds=max(model.seconds, int(_MIN_TTLS * ttl)))
        of_ttl = replace(of_ttl, workers=workers_for(of_ttl))
        found[f"TTL {ttl:g} s, no early refresh"] = replace(of_ttl, mode=Mode.NONE)
        for beta in BETAS[::2] if quick else BETAS:
            found[f"TTL {ttl:g} s, β {beta:g}"] = replace(of_ttl, beta=beta)
    return found


def _loaded(model: Model) -> Model:
    return replace(_smaller(model, LOADED_PART), popularity=Popularity.ZIPF, ttl=LOADED_TTL)


def _overload(model: Model, quick: bool) -> dict[str, Model]:  # noqa: FBT001
    found: dict[str, Model] = {}
    world = replace(_loaded(model), seconds=int(OVERLOADED_TTLS * LOADED_TTL))
    for load in (OVERLOADS[0], OVERLOAD) if quick else OVERLOADS:
        one = _at_load(world, load)
        for queue, model_of_it in zip(QUEUES, (one, replace(one, overloaded_after=math.inf)), strict=True):
            found[f"{load:.0%}, {queue}"] = model_of_it
    heavy = _at_load(replace(world, heavy_every=HEAVY_EVERY, heavy_times=HEAVY_TIMES), OVERLOAD)
    for which, model_of_it in zip(WEIGHED, (heavy, replace(heavy, weighs_loads=False)), strict=True):
        found[f"{OVERLOAD:.0%}, {HEAVY}, {which}"] = model_of_it
    return found


def _recovery(model: Model, quick: bool) -> dict[str, Model]:  # noqa: FBT001
    world = _loaded(model)
    world = replace(world, reads_per_second=world.reads_per_second * RECOVERY_HOTTER)
    return {
        f"{load:.0%}, {trigger.name}": trigger.applied(_at_load(world, load))
        for load in (RECOVERY_LOADS[::3] if quick else RECOVERY_LOADS)
        for trigger in TRIGGERS
    }


def _feed(model: Model, _: bool) -> dict[str, Model]:  # noqa: FBT001
    hot = _smaller(model, HOT_PART)
    hot = replace(hot, reads_per_second=hot.reads_per_second * HOTTER, ttl=min(FEED_TTLS.values()))
    hot = replace(hot, workers=workers_for(hot))
    return {
        f"{name}, {1 / writes:,.0f} s between two writes": replace(
            hot, ttl=ttl, writes=writes, noticed_after=_NOTICED_AFTER if name.startswith("feed") else math.inf
        )
        for name, ttl in FEED_TTLS.items()
        for writes in _WRITES
    }


_MODELS: Final[Mapping[Scenario, Callable[[Model, bool], dict[str, Model]]]] = {
    Scenario.STEADY: _steady,
    Scenario.WORKER_OUTAGE: _worker_outage,
    Scenario.FLEET: _fleet,
    Scenario.BETA: _beta,
    Scenario.OVERLOAD: _overload,
    Scenario.RECOVERY: _recovery,
    Scenario.FEED: _feed,
}
