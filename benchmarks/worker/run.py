"""Run of the groups, over the servers that they need."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Final

from rich.console import Console

from benchmarks.apparatus.graph import GraphTarget
from benchmarks.apparatus.servers import running_servers
from benchmarks.options import check_names
from benchmarks.reports.report import Groups, report
from benchmarks.worker import duplicates, latency, pools, rates
from benchmarks.worker.duplicates import measured_duplicates
from benchmarks.worker.latency import measured_latency
from benchmarks.worker.options import WorkerOptions
from benchmarks.worker.persons import graph_of_persons
from benchmarks.worker.pools import measured_pools
from benchmarks.worker.rates import measured_rates

POOLS: Final = "pools"
USUAL: Final = ("rates", "latency", "duplicates")
"""The pools take longer than all others: they are run alone, and kept as a benchmark of their own."""


def run(options: WorkerOptions, console: Console) -> None:
    """Measure what the options select."""
    check_names("group", options.only, (*USUAL, POOLS))
    scale, versions = options.scale, dict[str, str]()
    report(
        POOLS if options.only == [POOLS] else "worker", options, console, _groups(options, versions),
        versions=versions, rounds=scale.rounds, more={"messages_in_one_go": scale.messages, "samples": scale.samples},
    )  # fmt: skip


def _groups(options: WorkerOptions, versions: dict[str, str]) -> Groups:
    wanted = options.only or USUAL
    with ExitStack() as stack:
        servers = stack.enter_context(running_servers())
        graph = GraphTarget({}, "none")
        if options.only != [duplicates.GROUP]:
            graph = stack.enter_context(graph_of_persons(options.scale.warm_up_loads))
        versions |= servers.versions | {"graph": graph.title}
        for name, group, measure in (
            ("rates", rates.GROUP, measured_rates),
            (POOLS, pools.GROUP, measured_pools),
            ("latency", latency.GROUP, measured_latency),
            (duplicates.GROUP, duplicates.GROUP, measured_duplicates),
        ):
            if name in wanted:
                yield group, partial(measure, servers, graph, options)
