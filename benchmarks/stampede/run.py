"""Plays the scenarios, shows what they come to, and keeps it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import redis

from benchmarks import report
from benchmarks.about import about, made_folder
from benchmarks.errors import BenchError
from benchmarks.figures import Result
from benchmarks.places import Place, place
from benchmarks.processes import prepare
from benchmarks.stampede import backstage, herd_results, steady_results
from benchmarks.stampede.herds import lasting, run_herds
from benchmarks.stampede.lanes import Lane, lanes_of
from benchmarks.stampede.options import Scenario, StampedeOptions
from benchmarks.stampede.steady import Plan, run_steady
from benchmarks.stampede.strategies import chosen
from benchmarks.stampede.strategies.ours import Ours
from benchmarks.stampede.terms import OriginKind, Terms
from refresher.embedded import ArcadeDbServer

if TYPE_CHECKING:
    from rich.console import Console


def run_stampede(options: StampedeOptions, console: Console) -> None:
    """Play what was asked for. Ctrl-C ends the reading; what was counted until then is shown and kept.

    Raises:
        BenchError: a strategy that does not exist, a folder that can't be written, readers or a worker that did not
            start.
        EmbeddedServerError, ConfigurationError, CacheUnavailable: a server can't be started or used.
    """
    made_folder(options.out)
    played = {scenario: _lanes(scenario, options, console) for scenario in options.played}
    prepare()
    results: list[Result] = []
    with place(options.redis_url) as here, ExitStack() as stack:
        content = _about(options, here)
        is_graph_asked = options.origin is OriginKind.GRAPH
        has_ours = any(lane.strategy is Ours for lanes in played.values() for lane in lanes)
        graph = stack.enter_context(ArcadeDbServer.start()) if is_graph_asked or has_ours else None
        address = backstage.loaded(graph, options.seed) if graph is not None and is_graph_asked else None
        control = stack.enter_context(redis.Redis.from_url(here.control_url))
        for scenario, lanes in played.items():
            scale = options.scale(scenario)
            terms = Terms(here, scale.expires, scale.delta, scale.lease, options.beta, options.rnd_precision, address)
            console.print(f"{scenario}: {', '.join(lane.title for lane in lanes)} …", style="dim")
            began = time.monotonic()
            try:
                with backstage.workers(lasting(terms) if scenario is Scenario.HERD else terms, lanes, graph):
                    result, was_interrupted = _played(scenario, lanes, terms, options, control, console)
            except KeyboardInterrupt:
                if not results:  # nothing was counted
                    raise
                was_interrupted = True
            else:
                results.append(replace(result, seconds=time.monotonic() - began))
            if was_interrupted:
                console.print(report.INTERRUPTED)
                break
    report.present(options.out, content, results, console)


def _lanes(scenario: Scenario, options: StampedeOptions, console: Console) -> list[Lane]:
    """Return who runs, and say who does not.

    Raises:
        BenchError: nobody does.
    """
    lanes, left_out = lanes_of(scenario, chosen(options.strategies), options.readers)
    if not lanes:
        raise BenchError(f"nobody can run {scenario}: {'; '.join(map(': '.join, left_out.items()))}")
    for title, why in left_out.items():
        console.print(f"{scenario} without {title}: {why}", style="dim")
    return lanes


def _played(
    scenario: Scenario, lanes: Sequence[Lane], terms: Terms, options: StampedeOptions, control: redis.Redis,
    console: Console,
) -> tuple[Result, bool]:  # fmt: skip
    scale = options.scale(scenario)
    if scenario is Scenario.HERD:
        runs, was_interrupted = run_herds(lanes, terms, scale, control, console, options.seed)
        return herd_results.result_of(runs, lanes, scale), was_interrupted
    kills = scenario is Scenario.HOT_KEY
    plan = Plan(terms, scale, control, console, options.report_every, options.seed, kills)
    steady = run_steady(lanes, plan)
    return steady_results.result_of(scenario, steady, scale), plan.was_interrupted


def _about(options: StampedeOptions, here: Place) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "scenarios": ", ".join(options.played),
        "strategies": ", ".join(options.strategies) or "all",
        "readers": options.readers or "each scenario's own",
        "origin": options.origin,
        "beta": options.beta,
        "rnd_precision": options.rnd_precision,
        "redis": here.title,
        "quick": options.quick,
    }
    for scenario in options.played:
        said = ", ".join(f"{name} {value}" for name, value in asdict(options.scale(scenario)).items() if value)
        asked[f"{scenario}"] = f"({said})"
    return about("stampede", seed=options.seed, options=asked, servers={"redis-server": here.version})
