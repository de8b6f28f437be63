"""Run of the scenarios with their workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any, Final

from rich.console import Console

from api_client import CacheClient, CacheError
from benchmarks.apparatus.processes import prepare
from benchmarks.apparatus.servers import Servers, running_servers
from benchmarks.apparatus.workers import refresh_worker, running_worker
from benchmarks.errors import BenchError
from benchmarks.reports.report import Groups, report
from benchmarks.reports.results import Result
from benchmarks.stampede import simultaneous_report, steady_report
from benchmarks.stampede.config import Config, Scenario
from benchmarks.stampede.options import StampedeOptions
from benchmarks.stampede.simultaneous import run_simultaneous, without_expiry
from benchmarks.stampede.steady import Plan, run_steady
from benchmarks.stampede.strategies.cacheback_job import VARIANT
from benchmarks.stampede.strategies.ours import QUERY, Ours
from benchmarks.stampede.strategies.peers import Cacheback
from benchmarks.stampede.variants import Variant, chosen, variants_of
from refresher.embedded import ArcadeDbServer

_WARM_UP_SECONDS: Final = 60.0
_QUERIES: Final = "benchmarks.stampede.queries"
_CACHEBACK: Final = "benchmarks.stampede.strategies.cacheback_job"


def run(options: StampedeOptions, console: Console) -> None:
    """Run the selected scenarios."""
    scales = {scenario: options.scale(scenario) for scenario in options.scenarios_to_run}
    more: dict[str, Any] = {"scenario": ", ".join(scales)}
    for scenario, scale in scales.items():
        more[scenario] = f"({', '.join(f'{name} {value}' for name, value in asdict(scale).items() if value)})"
    versions: dict[str, str] = {}
    rounds = max(scale.rounds for scale in scales.values()) or 1
    report(
        "stampede", options, console, _groups(options, console, versions), versions=versions, rounds=rounds, more=more
    )  # fmt: skip


def _groups(options: StampedeOptions, console: Console, versions: dict[str, str]) -> Groups:
    variants = {scenario: variants_of(scenario, chosen(options.strategy)) for scenario in options.scenarios_to_run}
    prepare()
    with ExitStack() as stack:
        servers = stack.enter_context(running_servers())
        versions |= servers.versions
        for scenario, found in variants.items():
            name = f"{scenario}: {', '.join(variant.title for variant in found)}"
            yield name, partial(_result_of, scenario, found, options, servers, console)


def _result_of(
    scenario: Scenario, variants: Sequence[Variant], options: StampedeOptions, servers: Servers, console: Console
) -> Result:
    scale, is_herd = options.scale(scenario), scenario is Scenario.HERD
    config = Config(servers, scale.expires, scale.delta, scale.lease)
    with servers.control() as control, _workers(without_expiry(config) if is_herd else config, variants):
        if is_herd:
            runs = run_simultaneous(variants, config, scale, control, console, options.seed)
            return simultaneous_report.result_of(runs, variants, scale)
        plan = Plan(config, scale, control, options.seed, kills=scenario is Scenario.HOT_KEY)
        return steady_report.result_of(scenario, run_steady(variants, plan))


@contextmanager
def _workers(config: Config, variants: Sequence[Variant]) -> Iterator[None]:
    """Run the Celery workers of these variants, with default settings and the config. Ours needs a graph."""
    with ExitStack() as stack:
        if any(variant.strategy is Ours for variant in variants):
            graph = stack.enter_context(ArcadeDbServer.start())
            stack.enter_context(refresh_worker(config.servers, graph.environ, _QUERIES, _our_environ(config)))
            _warm_up(config)
        for variant in variants:
            if variant.strategy is Cacheback:
                environ = config.as_environ() | {VARIANT: variant.name}
                stack.enter_context(running_worker(config.servers, ["-A", _CACHEBACK], environ))
        yield


def _warm_up(config: Config) -> None:
    """Have one value made, since a worker connects at its first load, which takes seconds."""
    with CacheClient(config.servers.lenient_settings()) as client:
        try:
            client.get(QUERY, {"variant": "warm-up", "number": 0}, timeout=_WARM_UP_SECONDS)
        except CacheError as error:
            raise BenchError(f"the worker made no value: {error}") from error


def _our_environ(config: Config) -> dict[str, str]:
    return config.as_environ() | {
        "CACHE_XFETCH_MIN_TTL": "0",  # these values last only seconds, but should be refreshed early
        "CACHE_XFETCH_BETA": str(config.beta),
        "STAMPEDE_LOCK_TIMEOUT_MS": str(round(config.lease_seconds * 1000)),
    }
