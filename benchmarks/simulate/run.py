"""Run of the scenarios, or of a validation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from benchmarks.reports.provenance import make_folder, provenance
from benchmarks.reports.report import measured, present
from benchmarks.reports.results import Figure, Must, Result, Target, figure
from benchmarks.simulate.charts import (
    MAX_OF_FIFO,
    charts_of,
    recoveries_of,
    recovery_figures,
    recovery_table,
    runs_table,
    settled,
)
from benchmarks.simulate.model import Fault, Model
from benchmarks.simulate.options import RealRun, Scenario, SimulateOptions
from benchmarks.simulate.outcome import Outcome
from benchmarks.simulate.overload_run import overloaded
from benchmarks.simulate.recovery import Recovered
from benchmarks.simulate.recovery_run import LOADS, all_recovered, recovered
from benchmarks.simulate.scenarios import HEAVY, OVERLOAD, QUEUES, TITLES, WEIGHED, model_of, models
from benchmarks.simulate.simulation import simulate
from benchmarks.simulate.validation import validated

if TYPE_CHECKING:
    from rich.console import Console

_LARGE_KEYS: Final = 10_000_000
_LARGE_READS: Final = 600_000_000
_MAX_SECONDS: Final = Target(Must.AT_MOST, 300)
_MAX_GIB: Final = Target(Must.AT_MOST, 1.5)
_QUICK: Final[dict[str, Any]] = {
    "keys": 20_000, "reads_per_second": 2_000.0, "readers": 20, "seconds": 60, "ttl": 60.0,
}  # fmt: skip


def run(options: SimulateOptions, console: Console) -> None:
    """Simulate what the options select. Ctrl-C ends it; the scenarios that were simulated by then are shown and kept.

    Raises:
        BenchError: numba is not installed, or a folder can't be written; when all else is kept: a validation's servers,
            worker or readers failed.
    """
    make_folder(options.out)
    if options.quick:
        options = replace(options, **_QUICK)
    servers: dict[str, str] = {}
    about = provenance(_benchmark(options), options, rounds=1, servers=servers, more={})
    results = measured(_groups(options, console, servers), console)
    about["versions"] |= servers
    present(options.out, about, results, console)


def _benchmark(options: SimulateOptions) -> str:
    """Return the name under which the results are kept."""
    is_own = options.real in {RealRun.RECOVERY, RealRun.OVERLOAD}
    return str(options.real) if is_own else "simulate"


def _groups(
    options: SimulateOptions, console: Console, servers: dict[str, str]
) -> Iterator[tuple[str, Callable[[], Result]]]:
    """Yield what is measured, by name; ``servers`` receives the versions of those that were started."""
    if options.real is RealRun.RECOVERY:
        found: list[Recovered] = []
        for load in LOADS[1:2] if options.quick else LOADS:
            yield f"{load:.0%}", partial(recovered, load, options, console, servers, found)
        yield "all", partial(all_recovered, found)
        return
    console.print(f"compiled in {_compile_all():.1f} s", style="dim")
    if options.real is RealRun.OVERLOAD:
        yield "overload", partial(overloaded, options, console, servers)
    elif options.real is RealRun.VALIDATION:
        yield "validation", partial(validated, options, console, servers)
    else:
        model = model_of(options)
        for one in options.scenario or list(Scenario):
            yield one.value, partial(_simulated, one, model, quick=options.quick)


def _compile_all() -> float:
    """Simulate a second of next to nothing with every fault, so that no measured run compiles."""
    began = time.perf_counter()
    fault = Fault(flush=0.0, broker=(0.0, 1.0))
    simulate(
        Model(keys=10, reads_per_second=10, readers=1, workers=1, seconds=1, ttl=60, grace=60, load=0.01, fault=fault)
    )
    return time.perf_counter() - began


def _simulated(scenario: Scenario, model: Model, *, quick: bool) -> Result:
    outcomes = {name: simulate(one) for name, one in models(scenario, model, quick=quick).items()}
    tables = [runs_table(TITLES[scenario], outcomes)]
    figures = _figures(outcomes)
    if scenario is Scenario.OVERLOAD:
        figures += _overload_figures(outcomes)
    elif scenario is Scenario.RECOVERY:
        recovered = recoveries_of(outcomes)
        figures += recovery_figures(recovered)
        tables.append(recovery_table("recovery", recovered))
    return Result(
        scenario.value, TITLES[scenario], figures, tables=tables, charts=charts_of(scenario, outcomes)
    )  # fmt: skip


def _overload_figures(outcomes: dict[str, Outcome]) -> list[Figure]:
    """Return the stale share at twice the load, against a queue that takes everything; and by how loads are weighed."""
    window, fifo = (settled(outcomes[f"{OVERLOAD:.0%}, {queue}"]).stale_share for queue in QUEUES)
    weighed, not_weighed = (
        settled(outcomes[f"{OVERLOAD:.0%}, {HEAVY}, {which}"]).stale_share for which in WEIGHED
    )  # fmt: skip
    return [
        figure(
            "stale reads at twice the load, against first in, first out", (window / fifo,), "×", MAX_OF_FIFO,
            f"{window:.1%} against {fifo:.1%}",
        ),
        figure(
            f"{HEAVY}: loads weighed, against not weighed", (weighed / not_weighed,), "×", None,
            f"{weighed:.1%} against {not_weighed:.1%}",
        ),
    ]  # fmt: skip


def _figures(outcomes: dict[str, Outcome]) -> list[Figure]:
    """Return what the simulation itself took; targets are those of ten million keys and 600 million reads."""
    longest = max(outcomes.values(), key=lambda outcome: outcome.wall_seconds)
    is_large = longest.model.keys >= _LARGE_KEYS and longest.reads >= _LARGE_READS
    memory = max(outcome.most_bytes for outcome in outcomes.values()) / 2**30
    return [
        figure(
            "longest run: wall time", (longest.wall_seconds,), "s", _MAX_SECONDS if is_large else None,
            f"{longest.model.keys:,} keys, {longest.reads:,.0f} reads, {longest.loads():,} loads",
        ),
        figure("most memory so far", (memory,), "GiB", _MAX_GIB if is_large else None),
    ]  # fmt: skip
