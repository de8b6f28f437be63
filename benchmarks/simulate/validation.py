"""A real run and the same model simulated, side by side."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean
from typing import TYPE_CHECKING, Final

from benchmarks.reports.results import Figure, Must, Result, Table, Target, figure
from benchmarks.simulate.model import Model
from benchmarks.simulate.options import Popularity, SimulateOptions
from benchmarks.simulate.outcome import Outcome
from benchmarks.simulate.real_run import Real, real_run
from benchmarks.simulate.simulation import simulate

if TYPE_CHECKING:
    from rich.console import Console

_GROUP: Final = "validation"
_TITLE: Final = "a real run, and the same one simulated"
_MAX_PERCENT: Final = Target(Must.AT_MOST, 10)
_SEEDS: Final = 20
_WARM_UP_ROUNDS: Final = 3
_QUICK_ROUNDS: Final = 1


def validated(options: SimulateOptions, console: Console, servers: dict[str, str]) -> Result:
    """Run for real, simulate with what the run measured, and compare.

    Raises:
        EmbeddedServerError, BenchError: as `real_run`.
    """
    model = validation_model(options)
    warm_up = int((_QUICK_ROUNDS if options.quick else _WARM_UP_ROUNDS) * model.ttl)
    console.print(f"a real run of {warm_up + model.seconds} s …", style="dim")
    real = real_run(model, warm_up, servers)
    simulated = simulate_like(model, real, warm_up)
    return Result(_GROUP, _TITLE, _figures(real, simulated), tables=[_table(model, real, simulated)])


def validation_model(options: SimulateOptions) -> Model:
    """Return a model that two cores can hold, also beside other work: workers and readers mostly wait.

    A TTL of seconds gives a thousand loads in a minute, and keys that are read about once a TTL give as many stale
    reads: chance moves neither by more than some percent. There are more workers than are ever busy, so that what
    passes from claim to acquire is the way there and no queue, and can be measured.
    """
    return Model(
        keys=150,
        reads_per_second=150.0,
        readers=2,
        workers=8,
        seconds=10 if options.quick else 60,
        ttl=5.0,
        grace=60.0,
        load=0.1,
        beta=options.beta,
        mode=options.mode,
        popularity=Popularity.ZIPF,
        zipf_exponent=options.zipf_exponent,
        min_ttl=1.0,
        seed=options.seed,
    )


def simulate_like(model: Model, real: Real, warm_up: int) -> list[Outcome]:
    """Simulate what ran, with the costs and the rate of reads that it measured, over several seeds."""
    like_it = replace(
        model,
        costs=real.costs,
        pickups=real.pickups,
        reads_per_second=real.reads / model.seconds,
        seconds=warm_up + model.seconds,
    )
    return [simulate(replace(like_it, seed=seed)).since(warm_up) for seed in range(_SEEDS)]


def _figures(real: Real, simulated: list[Outcome]) -> list[Figure]:
    loads = mean(outcome.loads() for outcome in simulated)
    stale = mean(outcome.stale_share for outcome in simulated)
    costs = real.costs
    return [
        figure(
            "recomputes: simulated against real, apart", (_difference_percent(loads, real.loads),), "%",
            _MAX_PERCENT, f"{loads:,.0f} against {real.loads:,}",
        ),
        figure(
            "stale share: simulated against real, apart", (_difference_percent(stale, real.stale_share),), "%",
            _MAX_PERCENT, f"{stale:.2%} against {real.stale_share:.2%}",
        ),
        figure("measured: from claim to acquire", (costs.pickup * 1000,), "ms"),
        figure("measured: of a run, beside the load", (costs.overhead * 1000,), "ms"),
        figure("real reads that began 50 ms late or later", (100 * real.late / real.reads,), "%"),
        figure("real reads that failed", (float(real.errors),), "", Target(Must.BE, 0)),
    ]  # fmt: skip


def _difference_percent(simulated: float, real: float) -> float:
    return 100 * abs(simulated / real - 1) if real else 100.0


def _table(model: Model, real: Real, simulated: list[Outcome]) -> Table:
    """Return both, side by side; of the simulation the mean, and the range over its seeds."""
    loads = [float(outcome.loads()) for outcome in simulated]
    stale = [100 * outcome.stale_share for outcome in simulated]
    waiting = [100 * outcome.waiting_share for outcome in simulated]
    rows = (
        ("recomputes", float(real.loads), mean(loads), min(loads), max(loads)),
        ("stale reads, %", 100 * real.stale_share, mean(stale), min(stale), max(stale)),
        ("waiting reads, %", 100 * real.waited / real.reads, mean(waiting), min(waiting), max(waiting)),
        ("reads/s", real.reads / model.seconds, simulated[0].model.reads_per_second, None, None),
    )
    return Table(_TITLE, ("", "real", "simulated", "least", "most"), rows)
