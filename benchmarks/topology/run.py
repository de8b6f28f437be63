"""Runs all cells, shows what they come to, and keeps it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from benchmarks import report
from benchmarks.about import about, made_folder
from benchmarks.errors import BenchError
from benchmarks.herd.worker import running_worker
from benchmarks.places import Place, place
from benchmarks.topology import worker_queries
from benchmarks.topology.cell import Outcome
from benchmarks.topology.graph_place import GraphPlace, graph_place
from benchmarks.topology.levels import Cell
from benchmarks.topology.measuring import measured
from benchmarks.topology.options import TopologyOptions
from benchmarks.topology.plan import cells, variants
from benchmarks.topology.results import results_of
from benchmarks.topology.world import World, made_world

if TYPE_CHECKING:
    from rich.console import Console


def run_topology(options: TopologyOptions, console: Console) -> None:
    """Measure all that was asked for.

    Raises:
        BenchError: no such graph can be drawn, or the folder can't be written.
        EmbeddedServerError, DemoError, ConfigurationError, CacheUnavailable: a server can't be started or used.
    """
    made_folder(options.out)
    try:
        world = made_world(options)
    except ValueError as error:
        raise BenchError(str(error)) from error
    with place(options.redis_url) as here:
        console.print(f"loading {world.graph.persons:,} persons, {world.graph.edges:,} KNOWS …", style="dim")
        with graph_place(options.neo4j_uri, world) as graph:
            content = _about(options, here, graph)
            outcomes = _outcomes(options, here, graph, world, console)
    results = results_of(outcomes, options)
    report.present(options.out, content, results, console)


def _outcomes(
    options: TopologyOptions, here: Place, graph: GraphPlace, world: World, console: Console
) -> list[Outcome]:  # fmt: skip
    total = sum(1 for _ in cells(options.extent, options.seed))
    began, done = time.monotonic(), 0

    def on_cell(cell: Cell) -> None:
        nonlocal done
        if done % max(1, total // 10) == 0:
            console.print(f"cell {done:,} of {total:,}, {time.monotonic() - began:.0f} s …", style="dim")
        done += 1

    with _worker(options, here, graph):
        return asyncio.run(measured(options, here, graph, world, on_cell))


@contextmanager
def _worker(options: TopologyOptions, here: Place, graph: GraphPlace) -> Iterator[None]:
    extent = options.extent
    environ = {
        **graph.environ,
        **here.environ,
        "REFRESHER_QUERIES": worker_queries.__name__,
        # TTLs here are shorter than those that have early refreshes by default.
        "CACHE_XFETCH_MIN_TTL": "0",
        "CACHE_XFETCH_WORKERS": str(extent.workers),
        worker_queries.CONTROL_URL: here.control_url,
        worker_queries.VARIANTS: json.dumps(variants(extent, options.seed)),
    }
    with running_worker(here, ["-A", "refresher"], environ):
        yield


def _about(options: TopologyOptions, here: Place, graph: GraphPlace) -> dict[str, Any]:
    extent, levels = options.extent, options.extent.levels
    asked = {
        "quick": options.quick,
        "graph_server": graph.title,
        "redis": here.title,
        "graphs": f"R-MAT of scale {extent.scale}, edge factor {options.edge_factor:g}, a b c d "
        f"{_listed(options.quadrants)}; a social network of {extent.persons:,} persons",
        "seeds": extent.seeds,
        "keys": extent.keys,
        "ttl_s": _listed(levels.ttls_seconds),
        "pause_s": _listed(levels.pauses_seconds),
        "loads": ", ".join(map(str, levels.loads)),
        "other_β0": _listed(levels.betas),
        "cell": f"{extent.cell_seconds:g} s after {extent.warm_up_seconds:g} s",
        "worker_processes": extent.workers,
    }
    return about("topology", seed=options.seed, options=asked, servers={"redis-server": here.version})


def _listed(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:g}" for value in values)
