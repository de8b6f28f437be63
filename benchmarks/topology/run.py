"""Run of all trials, on one event loop, with running servers and a running worker."""

from __future__ import annotations

import asyncio
import json
import random
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import redis.asyncio
from rich.console import Console

from api_client import AsyncCacheClient
from benchmarks.apparatus.graph import GraphTarget
from benchmarks.apparatus.servers import Servers, running_servers
from benchmarks.apparatus.workers import refresh_worker
from benchmarks.reports.report import Groups, report
from benchmarks.topology import queries as worker_queries
from benchmarks.topology.expected import expected_result
from benchmarks.topology.graphs import EDGE_FACTOR, GraphModel, keys_of, loaded_graph, make_model
from benchmarks.topology.on_workers import OnWorkers
from benchmarks.topology.options import TopologyOptions
from benchmarks.topology.own_process import Origin, OwnProcess
from benchmarks.topology.plan import BASE_BETA, CLIENTS, Candidate, Extent, GraphKind, Mode, Setting, Trial, Variant
from benchmarks.topology.queries import QueryKey
from benchmarks.topology.reader import TrialReader, TrialSetup
from benchmarks.topology.results import result_of
from benchmarks.topology.trial import Outcome, Window, run_trial

_LOADS_AT_ONCE: Final = 8
_LONGER: Final = 2
# An open loop has as many reads in progress as are due, which may wait for a load, but never for a connection.
_MAX_CONNECTIONS: Final = 10_000
# The rate of a closed loop on two small cores, before it has been measured.
_FIRST_GUESS: Final = {Setting.OWN_PROCESS: 300.0, Setting.WORKERS: 4_000.0}


def run(options: TopologyOptions, console: Console) -> None:
    """Measure what the options select."""
    versions: dict[str, str] = {}
    extent, groups = options.extent, _groups(options, console, versions)
    report("topology", options, console, groups, versions=versions, rounds=extent.seeds, more=_described(extent))


def _groups(options: TopologyOptions, console: Console, versions: dict[str, str]) -> Groups:
    """Run all trials, then yield a result for each graph, and the computed one."""
    extent = options.extent
    model = make_model(extent, options.seed)
    environ = {
        # TTLs here are too short for early refreshes by default.
        "CACHE_XFETCH_MIN_TTL": "0",
        "CACHE_XFETCH_WORKERS": str(extent.workers),
        worker_queries.VARIANTS: json.dumps(extent.variants()),
    }
    with running_servers() as servers:
        console.print(f"loading {model.graph.persons:,} persons, {model.graph.edges:,} KNOWS …", style="dim")
        with (
            loaded_graph(model.graph) as graph,
            refresh_worker(servers, graph.environ, worker_queries.__name__, environ),
        ):
            versions |= servers.versions | {"graph": graph.title}
            outcomes = asyncio.run(_measured(options, servers, graph, model, console))
    for graph_kind in GraphKind:
        yield f"topology-{graph_kind}", partial(result_of, graph_kind, outcomes, extent)
    yield "topology-expected", partial(expected_result, model, options.seed)


def _described(extent: Extent) -> dict[str, Any]:
    return {
        "graphs": f"R-MAT of scale {extent.scale}, edge factor {EDGE_FACTOR:g}; a social network of "
        f"{extent.persons:,} persons",
        "seeds": extent.seeds,
        "keys": extent.keys,
        "ttl": f"{_listed(extent.ttls_seconds)} s",
        "pause": f"{_listed(extent.pauses_seconds)} s",
        "rate": f"{_listed(extent.rates)} reads/s, 0: {CLIENTS} clients",
        "beta": f"{BASE_BETA:g}, and {_listed(extent.betas)}",
        "cell": f"{extent.trial_seconds:g} s after {extent.warm_up_seconds:g} s",
        "workers": extent.workers,
    }


def _listed(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:g}" for value in values)


async def _measured(
    options: TopologyOptions, servers: Servers, graph: GraphTarget, model: GraphModel, console: Console
) -> list[Outcome]:
    async with AsyncExitStack() as stack:
        driver = await stack.enter_async_context(graph.async_driver())
        cache, broker, control = (
            redis.asyncio.Redis.from_url(url, max_connections=_MAX_CONNECTIONS)
            for url in (servers.cache_url, servers.broker_url, servers.control_url)
        )
        for client in (cache, broker, control):
            stack.push_async_callback(client.aclose)
        reader = AsyncCacheClient(servers.lenient_settings())
        stack.push_async_callback(reader.close)
        origin = Origin(driver, graph.database)
        runner = _TrialRunner(options, servers.namespace, origin, reader, cache, broker, control)
        await runner.load_keys(model)
        await runner.warm_up()
        outcomes: list[Outcome] = []
        planned, began = list(options.extent.trials(options.seed)), time.monotonic()
        for done, trial in enumerate(planned):
            if done % max(1, len(planned) // 10) == 0:
                console.print(f"cell {done:,} of {len(planned):,}, {time.monotonic() - began:.0f} s …", style="dim")
            outcomes.append(await runner.run(trial))
        return outcomes


@dataclass(slots=True)
class _TrialRunner:
    """Runner of trials, with its open clients, and with keys and their values by graph and seed."""

    options: TopologyOptions
    namespace: str
    origin: Origin
    reader: AsyncCacheClient
    cache: redis.asyncio.Redis
    broker: redis.asyncio.Redis
    control: redis.asyncio.Redis
    keys: dict[tuple[GraphKind, int], tuple[list[QueryKey], list[Any]]] = field(default_factory=dict)
    _seen_rates: dict[Candidate, float] = field(default_factory=dict)
    _variants: list[Variant] = field(init=False)

    def __post_init__(self) -> None:
        self._variants = self.options.extent.variants()

    async def load_keys(self, model: GraphModel) -> None:
        """Choose the keys of every graph, and load their values once, which also warms up the graph."""
        at_once = asyncio.Semaphore(_LOADS_AT_ONCE)

        async def load(query_key: QueryKey) -> Any:
            async with at_once:
                return await self.origin.load(query_key, 0.0)

        for (kind, seed), subgraph in model.subgraphs.items():
            keys = keys_of(subgraph, self.options.extent.keys, seed)
            self.keys[kind, seed] = keys, list(await asyncio.gather(*map(load, keys)))

    async def warm_up(self) -> None:
        """Let every process do its first-time work: read each key once, all of them stale."""
        extent = self.options.extent
        point = extent.base(extent.graphs_with_grid[0])
        for setting in Setting:
            reader = self._reader(Trial(point, Candidate(setting, Mode.PLAIN), self.options.seed))
            numbers = range(len(reader.setup.keys))
            await reader.put([-1.0] * len(numbers))
            await asyncio.gather(*map(reader.read, numbers))
            await reader.clear()

    async def run(self, trial: Trial) -> Outcome:
        extent, candidate = self.options.extent, trial.candidate
        expected = trial.point.rate or self._seen_rates.get(candidate, _FIRST_GUESS[candidate.setting])
        is_longer = trial.point == extent.beta_point(trial.point.graph)
        window = Window(extent.warm_up_seconds, extent.trial_seconds * (_LONGER if is_longer else 1))
        outcome = await run_trial(self._reader(trial), window, expected)
        if not trial.point.rate:
            self._seen_rates[candidate] = max(outcome.reads_per_second, 1.0)
        return outcome

    def _reader(self, trial: Trial) -> TrialReader:
        setup = TrialSetup(trial, *self.keys[trial.point.graph, trial.seed])
        if trial.candidate.setting is Setting.OWN_PROCESS:
            rng = random.Random(trial.seed)  # noqa: S311 - no secret
            return OwnProcess(setup, self.cache, self.origin, self.namespace, rng)
        variant = self._variants.index(trial.variant)
        return OnWorkers(setup, self.reader, variant, self.cache, self.broker, self.control)
