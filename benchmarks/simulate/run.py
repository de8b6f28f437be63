"""Simulates the scenarios, or validates the simulation, and keeps what comes of it."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final

from benchmarks import report
from benchmarks.about import about, made_folder
from benchmarks.figures import Figure, Must, Result, Target
from benchmarks.simulate.options import Scenario, SimulateOptions
from benchmarks.simulate.outcome import Outcome
from benchmarks.simulate.pictures import plots_of
from benchmarks.simulate.scenarios import TITLES, world_of, worlds
from benchmarks.simulate.simulation import simulate
from benchmarks.simulate.tables import events_table, runs_table
from benchmarks.simulate.validation import validated
from benchmarks.simulate.world import World

if TYPE_CHECKING:
    from rich.console import Console

_LARGE_KEYS: Final = 10_000_000
_LARGE_READS: Final = 600_000_000
_MAX_SECONDS: Final = Target(Must.AT_MOST, 300)
_MAX_GIB: Final = Target(Must.AT_MOST, 1.5)
_QUICK: Final = {"keys": 20_000, "reads_per_second": 2_000.0, "readers": 20, "seconds": 60, "ttl_seconds": 60.0}


def run_simulate(options: SimulateOptions, console: Console) -> None:
    """Simulate what was asked for.

    Raises:
        BenchError: numba or matplotlib is not installed, or a folder can't be made; of a validation: its servers,
            worker or readers failed.
        EmbeddedServerError: of a validation: a server can't be started.
        OSError: the results can't be written.
    """
    made_folder(options.out)
    if options.quick:
        options = replace(options, **_QUICK)  # type: ignore[arg-type]  # the values are those of the fields
    servers: dict[str, str] = {}
    results = [validated(options, console, servers)] if options.validate else _scenarios(options, console)
    asked = {name: value for name, value in asdict(options).items() if name not in ("out", "seed")}
    asked["scenarios"] = ", ".join(options.scenarios) or "all"
    content = about("simulate", seed=options.seed, options=asked, servers=servers)
    report.present(options.out, content, results, console)


def _scenarios(options: SimulateOptions, console: Console) -> list[Result]:
    compile_seconds = _compile_all()
    console.print(f"compiled in {compile_seconds:.1f} s", style="dim")
    world = world_of(options)
    results = []
    for scenario in options.scenarios or Scenario:
        console.print(f"{scenario.value} …", style="dim")
        results.append(_simulated(scenario, world, quick=options.quick))
    return results


def _compile_all() -> float:
    """Simulate a second of next to nothing, so that no measured run compiles."""
    began = time.perf_counter()
    simulate(World(keys=10, reads_per_second=10, readers=1, workers=1, seconds=1, ttl=60, grace=60, load=0.01))
    return time.perf_counter() - began


def _simulated(scenario: Scenario, world: World, *, quick: bool) -> Result:
    began = time.monotonic()
    outcomes = {name: simulate(one) for name, one in worlds(scenario, world, quick=quick).items()}
    return Result(
        scenario.value,
        TITLES[scenario],
        figures=_figures(scenario, outcomes),
        tables=(runs_table(scenario, TITLES[scenario], outcomes), events_table(scenario, outcomes)),
        plots=plots_of(scenario, outcomes),
        seconds=time.monotonic() - began,
    )


def _figures(scenario: Scenario, outcomes: dict[str, Outcome]) -> tuple[Figure, ...]:
    """Return what the simulation itself took; targets are those of ten million keys and 600 million reads."""
    longest = max(outcomes.values(), key=lambda outcome: outcome.wall_seconds)
    is_large = longest.world.keys >= _LARGE_KEYS and longest.reads >= _LARGE_READS
    memory = max(outcome.most_bytes for outcome in outcomes.values()) / 2**30
    return (
        Figure(
            scenario.value, "longest run: wall time", (longest.wall_seconds,), "s", _MAX_SECONDS if is_large else None,
            f"{longest.world.keys:,} keys, {longest.reads:,.0f} reads, {longest.loads():,} loads",
        ),
        Figure(scenario.value, "most memory so far", (memory,), "GiB", _MAX_GIB if is_large else None),
    )  # fmt: skip
