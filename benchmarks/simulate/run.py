"""Run of the scenarios, simulated or on real processes."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any, Final

from rich.console import Console

from benchmarks.reports.report import Groups, report
from benchmarks.reports.results import Result
from benchmarks.simulate.engine.model import Fault, Model
from benchmarks.simulate.engine.simulation import simulate
from benchmarks.simulate.options import Scenario, SimulateOptions
from benchmarks.simulate.real_overload import overloaded
from benchmarks.simulate.results import result_of
from benchmarks.simulate.scenarios import model_of, models

_QUICK: Final[dict[str, Any]] = {
    "keys": 20_000, "reads_per_second": 2_000.0, "readers": 20, "seconds": 60, "ttl": 60.0,
}  # fmt: skip


def run(options: SimulateOptions, console: Console) -> None:
    """Simulate the selected scenarios, or run them for real."""
    if options.quick:
        options = replace(options, **_QUICK)
    versions: dict[str, str] = {}
    name = "overload" if options.real else "simulate"
    report(name, options, console, _groups(options, console, versions), versions=versions)


def _groups(options: SimulateOptions, console: Console, versions: dict[str, str]) -> Groups:
    console.print(f"compiled in {_compile_all():.1f} s", style="dim")
    if options.real:
        yield "overload", partial(overloaded, options, console, versions)
        return
    model = model_of(options)
    for one in options.scenario or list(Scenario):
        yield one.value, partial(_simulated, one, model, quick=options.quick)


def _compile_all() -> float:
    """Simulate a second of a tiny model with every fault, so that no measured run compiles."""
    began = time.perf_counter()
    fault = Fault(flush=0.0, broker=(0.0, 1.0))
    simulate(
        Model(keys=10, reads_per_second=10, readers=1, workers=1, seconds=1, ttl=60, grace=60, load=0.01, fault=fault)
    )
    return time.perf_counter() - began


def _simulated(scenario: Scenario, model: Model, *, quick: bool) -> Result:
    return result_of(scenario, {name: simulate(one) for name, one in models(scenario, model, quick=quick).items()})
