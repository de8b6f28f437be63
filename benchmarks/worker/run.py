"""Run of the groups on their servers."""

from __future__ import annotations

from functools import partial
from typing import Final

from rich.console import Console

from benchmarks.apparatus.servers import running_servers
from benchmarks.reports.report import Groups, report
from benchmarks.worker import latency, pools, rates
from benchmarks.worker.options import WorkerOptions
from benchmarks.worker.persons import graph_of_persons

POOLS: Final = "pools"
USUAL: Final = ("rates", "latency")
"""Name of the pools' group, which takes longer than all others, so it runs alone and is stored as its own benchmark."""
GROUPS: Final = {
    "rates": (rates.GROUP, rates.measured_rates),
    POOLS: (pools.GROUP, pools.measured_pools),
    "latency": (latency.GROUP, latency.measured_latency),
}


def run(options: WorkerOptions, console: Console) -> None:
    """Measure what the options select."""
    scale, versions = options.scale, dict[str, str]()
    report(
        POOLS if options.only == [POOLS] else "worker", options, console, _groups(options, versions),
        versions=versions, rounds=scale.rounds, more={"messages_in_one_go": scale.messages, "samples": scale.samples},
    )  # fmt: skip


def _groups(options: WorkerOptions, versions: dict[str, str]) -> Groups:
    selected = options.selected(GROUPS, USUAL)
    with running_servers() as servers, graph_of_persons(options.scale.warm_up_loads) as graph:
        versions |= servers.versions | {"graph": graph.title}
        for group, measure in selected.values():
            yield group, partial(measure, servers, graph, options)
