"""Scenarios: the models that each one compares, and a run of them. Faults begin at the same share of each span."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final

from benchmarks.reports import report
from benchmarks.reports.provenance import make_folder, provenance
from benchmarks.reports.results import Figure, Must, Result, Target
from benchmarks.simulate.charts import charts_of, events_table, runs_table
from benchmarks.simulate.command import Mode, Scenario, SimulateOptions
from benchmarks.simulate.model import NO_COSTS, Fault, Model
from benchmarks.simulate.outcome import Outcome
from benchmarks.simulate.simulation import simulate, workers_for
from benchmarks.simulate.validation import validated

TITLES: Final[Mapping[Scenario, str]] = {
    Scenario.STEADY: "a steady load",
    Scenario.CORRELATED_EXPIRY: "a tenth of all entries expires within ten seconds",
    Scenario.WORKER_OUTAGE: "all workers are killed, and come back later",
    Scenario.SLOW_ORIGIN: "loads take ten times as long for a while",
    Scenario.FLEET: "fleets of different sizes",
    Scenario.BETA: "β and TTL",
}
FLEET_PART: Final = 10
"""A sweep has many runs, each of a model so many times as small."""
HOT_PART: Final = 1_000
HOTTER: Final = 100
"""β is for keys that are read often: fewer keys, and so many times as many reads of each."""
_MIN_TTLS: Final = 3
BETAS: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
TTLS: Final = (60.0, 300.0, 1_800.0)
FLEET_SIZES: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)
GRACES: Final = (0.0, 60.0)
_MIN_KEYS: Final = 1_000
_FAULT_FROM: Final = 0.25
_FAULT_UNTIL: Final = 0.45
_SLOW_TIMES: Final = 10.0
_TOGETHER_SECONDS: Final = 10.0
_TOGETHER_SHARE: Final = 0.1


def model_of(options: SimulateOptions) -> Model:
    """Return the model of the options, with as many workers as it needs where no number was given."""
    model = Model(
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
    return model if options.workers else replace(model, workers=workers_for(model))


def models(scenario: Scenario, model: Model, *, quick: bool) -> dict[str, Model]:
    """Return the models of a scenario by name, in the order in which they run."""
    return _MODELS[scenario](model, quick)


def smaller(model: Model, part: int) -> Model:
    """Return a model so many times as small, but for a thousand keys: as many reads a key, and as busy workers."""
    keys = max(model.keys // part, min(model.keys, _MIN_KEYS))
    return replace(
        model,
        keys=keys,
        reads_per_second=model.reads_per_second * keys / model.keys,
        readers=max(1, model.readers * keys // model.keys),
        workers=max(1, model.workers * keys // model.keys),
    )


def in_readers(model: Model) -> Model:
    """Return the model without workers: who asks loads the value, and an expired one is gone."""
    return replace(model, in_readers=True, costs=NO_COSTS)


def fault_seconds(model: Model) -> tuple[int, int]:
    """Return from when until when things go wrong, in whole seconds."""
    begins = int(model.seconds * _FAULT_FROM)
    return begins, max(begins + 1, int(model.seconds * _FAULT_UNTIL))


def _by_mode(model: Model) -> dict[str, Model]:
    return {mode.value: replace(model, mode=mode) for mode in Mode}


def _steady(model: Model, _: bool) -> dict[str, Model]:  # noqa: FBT001
    ours = _by_mode(model)
    return ours | {f"{name}, in readers": in_readers(one) for name, one in ours.items()}


def _correlated_expiry(model: Model, _: bool) -> dict[str, Model]:  # noqa: FBT001
    begins, _ends = fault_seconds(model)
    fault = Fault(expire_at=begins, expire_over=_TOGETHER_SECONDS, expire_share=_TOGETHER_SHARE)
    return _by_mode(replace(model, fault=fault))


def _worker_outage(model: Model, _: bool) -> dict[str, Model]:  # noqa: FBT001
    broken = replace(model, fault=Fault(down=fault_seconds(model)))
    graces = dict.fromkeys([*GRACES, model.grace])
    return {f"grace {grace:g} s": replace(broken, grace=grace) for grace in graces}


def _slow_origin(model: Model, _: bool) -> dict[str, Model]:  # noqa: FBT001
    begins, ends = fault_seconds(model)
    fault = Fault(slow=(float(begins), float(ends)), slow_times=_SLOW_TIMES)
    return _by_mode(replace(model, fault=fault))


def _fleet(model: Model, quick: bool) -> dict[str, Model]:  # noqa: FBT001
    part = smaller(model, FLEET_PART)
    return {f"{size} workers": replace(part, workers=size) for size in (FLEET_SIZES[:4] if quick else FLEET_SIZES)}


def _beta(model: Model, quick: bool) -> dict[str, Model]:  # noqa: FBT001
    found: dict[str, Model] = {}
    hot = smaller(model, HOT_PART)
    hot = replace(hot, reads_per_second=hot.reads_per_second * HOTTER)
    for ttl in TTLS[:1] if quick else TTLS:
        of_ttl = replace(hot, ttl=ttl, seconds=max(model.seconds, int(_MIN_TTLS * ttl)))
        of_ttl = replace(of_ttl, workers=workers_for(of_ttl))
        found[f"TTL {ttl:g} s, no early refresh"] = replace(of_ttl, mode=Mode.NONE)
        for beta in BETAS[::2] if quick else BETAS:
            found[f"TTL {ttl:g} s, β {beta:g}"] = replace(of_ttl, beta=beta)
    return found


_MODELS: Final[Mapping[Scenario, Callable[[Model, bool], dict[str, Model]]]] = {
    Scenario.STEADY: _steady,
    Scenario.CORRELATED_EXPIRY: _correlated_expiry,
    Scenario.WORKER_OUTAGE: _worker_outage,
    Scenario.SLOW_ORIGIN: _slow_origin,
    Scenario.FLEET: _fleet,
    Scenario.BETA: _beta,
}


if TYPE_CHECKING:
    from rich.console import Console

_LARGE_KEYS: Final = 10_000_000
_LARGE_READS: Final = 600_000_000
_MAX_SECONDS: Final = Target(Must.AT_MOST, 300)
_MAX_GIB: Final = Target(Must.AT_MOST, 1.5)
_QUICK: Final = {"keys": 20_000, "reads_per_second": 2_000.0, "readers": 20, "seconds": 60, "ttl_seconds": 60.0}


def run_simulate(options: SimulateOptions, console: Console) -> None:
    """Simulate what the options select.

    Raises:
        BenchError: numba or matplotlib is not installed, or a folder can't be made; of a validation: its servers,
            worker or readers failed.
        EmbeddedServerError: of a validation: a server can't be started.
        OSError: the results can't be written.
    """
    make_folder(options.out)
    if options.quick:
        options = replace(options, **_QUICK)  # type: ignore[arg-type]  # the values are those of the fields
    servers: dict[str, str] = {}
    results = [validated(options, console, servers)] if options.validate else _scenarios(options, console)
    used = {name: value for name, value in asdict(options).items() if name not in ("out", "seed")}
    used["scenarios"] = ", ".join(options.scenarios) or "all"
    content = provenance("simulate", seed=options.seed, rounds=1, options=used, servers=servers)
    report.present(options.out, content, results, console)


def _scenarios(options: SimulateOptions, console: Console) -> list[Result]:
    compile_seconds = _compile_all()
    console.print(f"compiled in {compile_seconds:.1f} s", style="dim")
    model = model_of(options)
    results = []
    for scenario in options.scenarios or Scenario:
        console.print(f"{scenario.value} …", style="dim")
        results.append(_simulated(scenario, model, quick=options.quick))
    return results


def _compile_all() -> float:
    """Simulate a second of next to nothing, so that no measured run compiles."""
    began = time.perf_counter()
    simulate(Model(keys=10, reads_per_second=10, readers=1, workers=1, seconds=1, ttl=60, grace=60, load=0.01))
    return time.perf_counter() - began


def _simulated(scenario: Scenario, model: Model, *, quick: bool) -> Result:
    outcomes = {name: simulate(one) for name, one in models(scenario, model, quick=quick).items()}
    return Result(
        scenario.value,
        TITLES[scenario],
        figures=_figures(outcomes),
        tables=(runs_table(scenario, TITLES[scenario], outcomes), events_table(scenario, outcomes)),
        plots=charts_of(scenario, outcomes),
    )


def _figures(outcomes: dict[str, Outcome]) -> tuple[Figure, ...]:
    """Return what the simulation itself took; targets are those of ten million keys and 600 million reads."""
    longest = max(outcomes.values(), key=lambda outcome: outcome.wall_seconds)
    is_large = longest.model.keys >= _LARGE_KEYS and longest.reads >= _LARGE_READS
    memory = max(outcome.most_bytes for outcome in outcomes.values()) / 2**30
    return (
        Figure(
            "longest run: wall time", (longest.wall_seconds,), "s", _MAX_SECONDS if is_large else None,
            f"{longest.model.keys:,} keys, {longest.reads:,.0f} reads, {longest.loads():,} loads",
        ),
        Figure("most memory so far", (memory,), "GiB", _MAX_GIB if is_large else None),
    )  # fmt: skip
