"""The scenarios: which worlds each one compares. All go wrong at the same share of their span."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from benchmarks.simulate.options import Mode, Scenario, SimulateOptions
from benchmarks.simulate.simulation import workers_for
from benchmarks.simulate.world import NO_COSTS, Trouble, World

TITLES: Final[Mapping[Scenario, str]] = {
    Scenario.STEADY: "a steady load",
    Scenario.CORRELATED_EXPIRY: "a tenth of all entries expires within ten seconds",
    Scenario.WORKER_OUTAGE: "all workers are killed, and come back later",
    Scenario.SLOW_ORIGIN: "loads take ten times as long for a while",
    Scenario.FLEET: "fleets of different sizes",
    Scenario.BETA: "β and TTL",
}
FLEET_PART: Final = 10
"""A sweep has many runs, each of a world so many times as small."""
HOT_PART: Final = 1_000
HOTTER: Final = 100
"""β is for keys that are read often: fewer keys, and so many times as many reads of each."""
_MIN_TTLS: Final = 3
BETAS: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
TTLS: Final = (60.0, 300.0, 1_800.0)
FLEET_SIZES: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)
GRACES: Final = (0.0, 60.0)
_MIN_KEYS: Final = 1_000
_TROUBLE_FROM: Final = 0.25
_TROUBLE_UNTIL: Final = 0.45
_SLOW_TIMES: Final = 10.0
_TOGETHER_SECONDS: Final = 10.0
_TOGETHER_SHARE: Final = 0.1


def world_of(options: SimulateOptions) -> World:
    """Return the world that was asked for, with as many workers as it needs where no number was given."""
    world = World(
        keys=options.keys,
        reads_per_second=options.reads_per_second,
        readers=options.readers,
        workers=options.workers or 1,
        seconds=options.seconds,
        ttl=options.ttl_seconds,
        grace=options.grace_seconds,
        load=options.delta_seconds,
        load_spread=options.delta_spread,
        beta=options.beta,
        mode=options.mode,
        popularity=options.popularity,
        zipf_exponent=options.zipf_exponent,
        seed=options.seed,
    )
    return world if options.workers else replace(world, workers=workers_for(world))


def worlds(scenario: Scenario, world: World, *, quick: bool) -> dict[str, World]:
    """Return the worlds of a scenario by name, in the order in which they run."""
    return _WORLDS[scenario](world, quick)


def smaller(world: World, part: int) -> World:
    """Return a world so many times as small, but for a thousand keys: as many reads a key, and as busy workers."""
    keys = max(world.keys // part, min(world.keys, _MIN_KEYS))
    return replace(
        world,
        keys=keys,
        reads_per_second=world.reads_per_second * keys / world.keys,
        readers=max(1, world.readers * keys // world.keys),
        workers=max(1, world.workers * keys // world.keys),
    )


def in_readers(world: World) -> World:
    """Return the world without workers: who asks loads the value, and an expired one is gone."""
    return replace(world, in_readers=True, costs=NO_COSTS)


def trouble_seconds(world: World) -> tuple[int, int]:
    """Return from when until when things go wrong, in whole seconds."""
    begins = int(world.seconds * _TROUBLE_FROM)
    return begins, max(begins + 1, int(world.seconds * _TROUBLE_UNTIL))


def _by_mode(world: World) -> dict[str, World]:
    return {mode.value: replace(world, mode=mode) for mode in Mode}


def _steady(world: World, _: bool) -> dict[str, World]:  # noqa: FBT001
    ours = _by_mode(world)
    return ours | {f"{name}, in readers": in_readers(one) for name, one in ours.items()}


def _correlated_expiry(world: World, _: bool) -> dict[str, World]:  # noqa: FBT001
    begins, _ends = trouble_seconds(world)
    trouble = Trouble(expire_at=begins, expire_over=_TOGETHER_SECONDS, expire_share=_TOGETHER_SHARE)
    return _by_mode(replace(world, trouble=trouble))


def _worker_outage(world: World, _: bool) -> dict[str, World]:  # noqa: FBT001
    broken = replace(world, trouble=Trouble(down=trouble_seconds(world)))
    graces = dict.fromkeys([*GRACES, world.grace])
    return {f"grace {grace:g} s": replace(broken, grace=grace) for grace in graces}


def _slow_origin(world: World, _: bool) -> dict[str, World]:  # noqa: FBT001
    begins, ends = trouble_seconds(world)
    trouble = Trouble(slow=(float(begins), float(ends)), slow_times=_SLOW_TIMES)
    return _by_mode(replace(world, trouble=trouble))


def _fleet(world: World, quick: bool) -> dict[str, World]:  # noqa: FBT001
    part = smaller(world, FLEET_PART)
    return {f"{size} workers": replace(part, workers=size) for size in (FLEET_SIZES[:4] if quick else FLEET_SIZES)}


def _beta(world: World, quick: bool) -> dict[str, World]:  # noqa: FBT001
    found: dict[str, World] = {}
    hot = smaller(world, HOT_PART)
    hot = replace(hot, reads_per_second=hot.reads_per_second * HOTTER)
    for ttl in TTLS[:1] if quick else TTLS:
        of_ttl = replace(hot, ttl=ttl, seconds=max(world.seconds, int(_MIN_TTLS * ttl)))
        of_ttl = replace(of_ttl, workers=workers_for(of_ttl))
        found[f"TTL {ttl:g} s, no early refresh"] = replace(of_ttl, mode=Mode.NONE)
        for beta in BETAS[::2] if quick else BETAS:
            found[f"TTL {ttl:g} s, β {beta:g}"] = replace(of_ttl, beta=beta)
    return found


_WORLDS: Final[Mapping[Scenario, Callable[[World, bool], dict[str, World]]]] = {
    Scenario.STEADY: _steady,
    Scenario.CORRELATED_EXPIRY: _correlated_expiry,
    Scenario.WORKER_OUTAGE: _worker_outage,
    Scenario.SLOW_ORIGIN: _slow_origin,
    Scenario.FLEET: _fleet,
    Scenario.BETA: _beta,
}
