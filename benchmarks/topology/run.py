"""Run of all trials, on one event loop, over servers and a worker that are up."""

from __future__ import annotations

import asyncio
import json
import random
import time
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import redis.asyncio

from api_client import AsyncCacheClient
from benchmarks.apparatus.processes import refresh_worker
from benchmarks.apparatus.servers import Servers, running_servers
from benchmarks.errors import BenchError
from benchmarks.reports.provenance import make_folder, provenance
from benchmarks.reports.report import present
from benchmarks.topology import queries as worker_queries
from benchmarks.topology.expected import expected_result
from benchmarks.topology.model import GraphModel, GraphTarget, graph_target, keys_of, make_model
from benchmarks.topology.on_workers import OnWorkers
from benchmarks.topology.options import TopologyOptions
from benchmarks.topology.own_process import Origin, OwnProcess
from benchmarks.topology.plan import (
    BASE_BETA,
    Candidate,
    GraphKind,
    Mode,
    Setting,
    Trial,
    Variant,
    base,
    beta_point,
    trials,
    variants,
)
from benchmarks.topology.queries import QueryKey
from benchmarks.topology.reader import TrialReader, TrialSetup
from benchmarks.topology.results import results_of
from benchmarks.topology.trial import Outcome, Window, run_trial

if TYPE_CHECKING:
    from rich.console import Console

_LOADS_AT_ONCE: Final = 8
_LONGER: Final = 2
# An open loop has as many reads under way as are due: they are to wait for a load, never for a connection.
_MAX_CONNECTIONS: Final = 10_000
# Of a closed loop before it has been seen: what two small cores give.
_FIRST_GUESS: Final = {Setting.OWN_PROCESS: 300.0, Setting.WORKERS: 4_000.0}


@dataclass(frozen=True, slots=True)
class KeysWithValues:
    """The keys of one graph, and the value of each."""

    keys: list[QueryKey]
    values: list[Any]


@dataclass(slots=True)
class TrialRunner:
    """Runner of trials, with the clients that are open meanwhile.

    Attributes:
        options: of the run.
        place: cache and broker.
        origin: the graph, as the reader's own process asks it.
        reader: this project's client.
        cache, broker, control: plain clients.
        variants: of the worker's queries.
        watched: by graph and seed.
    """

    options: TopologyOptions
    servers: Servers
    origin: Origin
    reader: AsyncCacheClient
    cache: redis.asyncio.Redis
    broker: redis.asyncio.Redis
    control: redis.asyncio.Redis
    variants: list[Variant]
    keys_with_values: dict[tuple[GraphKind, int], KeysWithValues] = field(default_factory=dict)
    _seen_rates: dict[Candidate, float] = field(default_factory=dict)

    async def load_keys(self, model: GraphModel) -> None:
        """Choose the keys of every graph, and load their values once; that warms the graph up, too."""
        at_once = asyncio.Semaphore(_LOADS_AT_ONCE)

        async def load(query_key: QueryKey) -> Any:
            async with at_once:
                return await self.origin.load(query_key, 0.0)

        for (kind, seed), subgraph in model.subgraphs.items():
            keys = keys_of(subgraph, self.options.extent.keys, seed)
            self.keys_with_values[kind, seed] = KeysWithValues(keys, list(await asyncio.gather(*map(load, keys))))

    async def warm_up(self) -> None:
        """Let every process do once what it does once: all keys are stale, and each is read."""
        extent = self.options.extent
        point = base(extent.graphs_with_grid[0], extent)
        for setting in Setting:
            reader = self._reader(Trial(point, Candidate(setting, Mode.PLAIN), self.options.seed))
            numbers = range(len(reader.setup.keys))
            await reader.put([-1.0] * len(numbers))
            await asyncio.gather(*map(reader.read, numbers))
            await reader.clear()

    async def run(self, trial: Trial) -> Outcome:
        load, extent = trial.point.load, self.options.extent
        expected = load.reads_per_second or self._seen_rates.get(
            trial.candidate, _FIRST_GUESS[trial.candidate.setting]
        )  # fmt: skip
        is_longer = trial.point == beta_point(trial.point.graph, extent)
        window = Window(extent.warm_up_seconds, extent.trial_seconds * (_LONGER if is_longer else 1))
        outcome = await run_trial(self._reader(trial), window, expected)
        if load.clients:
            self._seen_rates[trial.candidate] = max(outcome.reads_per_second, 1.0)
        return outcome

    def _reader(self, trial: Trial) -> TrialReader:
        keys_with_values = self.keys_with_values[trial.point.graph, trial.seed]
        setup = TrialSetup(trial, keys_with_values.keys, keys_with_values.values)
        if trial.candidate.setting is Setting.OWN_PROCESS:
            rng = random.Random(trial.seed)  # noqa: S311 - no secret
            return OwnProcess(setup, self.cache, self.origin, self.servers.namespace, rng)
        point, candidate = trial.point, trial.candidate
        variant = (point.ttl_seconds, point.pause_seconds, candidate.mode, candidate.beta0)
        number = self.variants.index(variant)
        return OnWorkers(setup, self.reader, number, self.cache, self.broker, self.control)


async def measured(
    options: TopologyOptions, servers: Servers, graph: GraphTarget, model: GraphModel, console: Console
) -> list[Outcome]:
    """Run all trials."""
    async with AsyncExitStack() as stack:
        driver = await stack.enter_async_context(graph.async_driver())
        cache, broker, control = [
            redis.asyncio.Redis.from_url(url, max_connections=_MAX_CONNECTIONS)
            for url in (servers.cache_url, servers.broker_url, servers.control_url)
        ]
        for client in (cache, broker, control):
            stack.push_async_callback(client.aclose)
        reader = AsyncCacheClient(servers.lenient_settings())
        stack.push_async_callback(reader.close)
        origin, known = Origin(driver, graph.database), variants(options.extent, options.seed)
        runner = TrialRunner(options, servers, origin, reader, cache, broker, control, known)
        await runner.load_keys(model)
        await runner.warm_up()
        outcomes: list[Outcome] = []
        planned, began = list(trials(options.extent, options.seed)), time.monotonic()
        for done, trial in enumerate(planned):
            if done % max(1, len(planned) // 10) == 0:
                console.print(f"cell {done:,} of {len(planned):,}, {time.monotonic() - began:.0f} s …", style="dim")
            outcomes.append(await runner.run(trial))
        return outcomes


def run(options: TopologyOptions, console: Console) -> None:
    """Measure what the options select.

    Raises:
        BenchError: no such graph can be drawn, or the folder can't be written.
        EmbeddedServerError, DemoError, ConfigurationError, CacheUnavailable: a server can't be started or used.
    """
    make_folder(options.out)
    try:
        model = make_model(options)
    except ValueError as error:
        raise BenchError(str(error)) from error
    with running_servers(options.redis_url) as here:
        console.print(f"loading {model.graph.persons:,} persons, {model.graph.edges:,} KNOWS …", style="dim")
        with graph_target(options.neo4j_uri, model) as graph, _worker(options, here, graph):
            about = _provenance(options, here, graph)
            outcomes = asyncio.run(measured(options, here, graph, model, console))
    results = [*results_of(outcomes, options), expected_result(model, options.seed)]
    present(options.out, about, results, console)


def _worker(options: TopologyOptions, here: Servers, graph: GraphTarget) -> AbstractContextManager[None]:
    more = {
        # TTLs here are shorter than those that have early refreshes by default.
        "CACHE_XFETCH_MIN_TTL": "0",
        "CACHE_XFETCH_WORKERS": str(options.extent.workers),
        worker_queries.CONTROL_URL: here.control_url,
        worker_queries.VARIANTS: json.dumps(variants(options.extent, options.seed)),
    }
    return refresh_worker(here, graph.environ, worker_queries.__name__, more)


def _provenance(options: TopologyOptions, here: Servers, graph: GraphTarget) -> dict[str, Any]:
    extent = options.extent
    more = {
        "graph_server": graph.title,
        "redis": here.title,
        "graphs": f"R-MAT of scale {extent.scale}, edge factor {options.edge_factor:g}, a b c d "
        f"{_listed(options.quadrants)}; a social network of {extent.persons:,} persons",
        "seeds": extent.seeds,
        "keys": extent.keys,
        "ttl": f"{_listed(extent.ttls_seconds)} s",
        "pause": f"{_listed(extent.pauses_seconds)} s",
        "rate": ", ".join(map(str, extent.loads)),
        "beta": f"{BASE_BETA:g}, and {_listed(extent.betas)}",
        "cell": f"{extent.trial_seconds:g} s after {extent.warm_up_seconds:g} s",
        "scale": extent.scale, "persons": extent.persons, "workers": extent.workers,
    }  # fmt: skip
    versions = {"server": here.version}
    return provenance("topology", options, rounds=extent.seeds, servers=versions, more=more)


def _listed(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:g}" for value in values)
