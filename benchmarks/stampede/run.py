"""Run of the scenarios, with the workers and the graph that they need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import redis
from neo4j import GraphDatabase

from api_client import CacheClient, CacheError
from benchmarks.apparatus.processes import prepare, refresh_worker, running_worker
from benchmarks.apparatus.servers import Servers, running_servers
from benchmarks.errors import BenchError
from benchmarks.reports.provenance import make_folder, provenance
from benchmarks.reports.report import Interrupted, measured, present
from benchmarks.reports.results import Result
from benchmarks.stampede import simultaneous_report, steady_report
from benchmarks.stampede.config import Config, GraphAddress, OriginKind, Scenario
from benchmarks.stampede.options import StampedeOptions
from benchmarks.stampede.simultaneous import run_simultaneous, without_expiry
from benchmarks.stampede.steady import Plan, run_steady
from benchmarks.stampede.strategies.cacheback_job import VARIANT
from benchmarks.stampede.strategies.ours import QUERY, Ours
from benchmarks.stampede.strategies.peers import Cacheback
from benchmarks.stampede.variants import Variant, chosen, variants_of
from refresher.demo.graph.social_graph import SocialGraph, load
from refresher.embedded import ArcadeDbServer

if TYPE_CHECKING:
    from rich.console import Console


def run(options: StampedeOptions, console: Console) -> None:
    """Run the selected scenarios. Ctrl-C ends the reading; what was counted until then is shown and kept.

    Raises:
        BenchError: a strategy that does not exist, a folder that can't be written, or, when all else has been measured
            and kept, readers or a worker that did not start.
        EmbeddedServerError, ConfigurationError, CacheUnavailable: a server can't be started or used.
    """
    make_folder(options.out)
    variants = {scenario: _variants(scenario, options, console) for scenario in options.scenarios_to_run}
    prepare()
    with ExitStack() as stack:
        here = stack.enter_context(running_servers(options.redis_url))
        uses_graph = options.origin is OriginKind.GRAPH
        has_ours = any(variant.strategy is Ours for found in variants.values() for variant in found)
        graph = stack.enter_context(ArcadeDbServer.start()) if uses_graph or has_ours else None
        address = loaded(graph, options.seed) if graph is not None and uses_graph else None
        control = stack.enter_context(redis.Redis.from_url(here.control_url))
        about = _provenance(options, here)
        groups = (
            (
                f"{scenario}: {', '.join(variant.title for variant in found)}",
                partial(_result_of, scenario, found, options, here, control, console, graph, address),
            )
            for scenario, found in variants.items()
        )
        results = measured(groups, console)
    present(options.out, about, results, console)


def _variants(scenario: Scenario, options: StampedeOptions, console: Console) -> list[Variant]:
    """Return who runs, and say who does not.

    Raises:
        BenchError: nobody does.
    """
    variants, left_out = variants_of(scenario, chosen(options.strategy), options.readers)
    if not variants:
        raise BenchError(f"nobody can run {scenario}: {'; '.join(map(': '.join, left_out.items()))}")
    for title, why in left_out.items():
        console.print(f"{scenario} without {title}: {why}", style="dim")
    return variants


def _result_of(
    scenario: Scenario, variants: Sequence[Variant], options: StampedeOptions, here: Servers, control: redis.Redis,
    console: Console, graph: ArcadeDbServer | None, address: GraphAddress | None,
) -> Result:  # fmt: skip
    """Run a scenario, with the workers that it needs.

    Raises:
        Interrupted: Ctrl-C has ended it, with what was counted until then.
    """
    scale = options.scale(scenario)
    config = Config(here, scale.expires, scale.delta, scale.lease, options.beta, options.rnd_precision, address)
    with workers(without_expiry(config) if scenario is Scenario.HERD else config, variants, graph):
        if scenario is Scenario.HERD:
            runs, was_interrupted = run_simultaneous(variants, config, scale, control, console, options.seed)
            has_counted, result = bool(runs), simultaneous_report.result_of(runs, variants, scale)
        else:
            kills = scenario is Scenario.HOT_KEY
            plan = Plan(config, scale, control, console, options.report_every, options.seed, kills)
            steady = run_steady(variants, plan)
            has_counted, result = bool(steady), steady_report.result_of(scenario, steady)
            was_interrupted = plan.was_interrupted
    if was_interrupted:
        raise Interrupted(result) if has_counted else KeyboardInterrupt
    return result


def _provenance(options: StampedeOptions, here: Servers) -> dict[str, Any]:
    scales = {scenario: options.scale(scenario) for scenario in options.scenarios_to_run}
    more = {"scenario": ", ".join(scales), "readers": options.readers or "each scenario's own", "redis": here.title}
    for scenario, scale in scales.items():
        more[scenario] = f"({', '.join(f'{name} {value}' for name, value in asdict(scale).items() if value)})"
    rounds = max(scale.rounds for scale in scales.values()) or 1
    return provenance("stampede", options, rounds=rounds, servers={"server": here.version}, more=more)


_PERSONS: Final = 1_000
_EDGES: Final = 5_000
_WARM_UP_SECONDS: Final = 60.0
_QUERIES: Final = "benchmarks.stampede.queries"
_CACHEBACK: Final = "benchmarks.stampede.strategies.cacheback_job"


def loaded(server: ArcadeDbServer, seed: int) -> GraphAddress:
    """Load a graph of 1,000 persons, and return where it is; the person is the best known one."""
    graph = SocialGraph.generated(_PERSONS, _EDGES, seed=seed)
    with GraphDatabase.driver(server.bolt_uri, auth=(server.user, server.password)) as driver:
        load(driver, server.database, graph)
    hub = int(graph.degrees.argmax())
    return GraphAddress(server.bolt_uri, server.user, server.password, server.database, hub)


@contextmanager
def workers(config: Config, variants: Sequence[Variant], graph: ArcadeDbServer | None) -> Iterator[None]:
    """Run the Celery workers that these variants need: default settings, but for the config. Ours needs a graph.

    Raises:
        BenchError: one did not start.
    """
    with ExitStack() as stack:
        if graph is not None and any(variant.strategy is Ours for variant in variants):
            stack.enter_context(refresh_worker(config.servers, graph.environ, _QUERIES, _our_environ(config)))
            _warm_up(config)
        for variant in variants:
            if variant.strategy is Cacheback:
                environ = config.as_environ() | {VARIANT: variant.name}
                app = ["-A", _CACHEBACK]
                stack.enter_context(running_worker(config.servers, app, environ))
        yield


def _warm_up(config: Config) -> None:
    """Have one value made: what the worker connects to, it does at its first load, which takes seconds when it must.

    Raises:
        BenchError: there was no answer.
    """
    with CacheClient(config.servers.lenient_settings()) as client:
        try:
            client.get(QUERY, {"variant": "warm-up", "number": 0}, timeout=_WARM_UP_SECONDS)
        except CacheError as error:
            raise BenchError(f"the worker made no value: {error}") from error


def _our_environ(config: Config) -> dict[str, str]:
    return config.as_environ() | {
        "CACHE_XFETCH_MIN_TTL": "0",  # these values last for seconds, and are to be refreshed early all the same
        "CACHE_XFETCH_BETA": str(config.beta),
        "CACHE_XFETCH_RND_PRECISION": str(config.rnd_precision),
        "STAMPEDE_LOCK_TIMEOUT_MS": str(round(config.lease_seconds * 1000)),
    }
