"""Run of the groups, over the servers that they need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.apparatus.rabbitmq_server import RabbitMqServer
from benchmarks.apparatus.servers import Servers, running_servers
from benchmarks.errors import BenchError
from benchmarks.reports.provenance import make_folder, provenance
from benchmarks.reports.report import measured, present
from benchmarks.reports.results import Result
from benchmarks.worker import duplicates
from benchmarks.worker.duplicates import measured_duplicates
from benchmarks.worker.latency import measured_latency
from benchmarks.worker.options import BrokerKind, WorkerOptions
from benchmarks.worker.pools import measured_pools
from benchmarks.worker.rates import measured_rates
from benchmarks.worker.worker_proc import GraphTarget, graph_target

if TYPE_CHECKING:
    from rich.console import Console

RATES: Final = "rates"
POOLS: Final = "pools"
LATENCY: Final = "latency"
USUAL: Final = (RATES, LATENCY, duplicates.GROUP)
GROUPS: Final = (*USUAL, POOLS)
"""The pools take longer than all others: they are run alone, and kept as a benchmark of their own."""


def run(options: WorkerOptions, console: Console) -> None:
    """Measure what the options select. Ctrl-C ends it; the groups that were measured by then are shown and kept.

    Raises:
        BenchError: a group that does not exist, a folder that can't be written, or, when all else has been measured and
            kept, a group that failed.
        EmbeddedServerError, ConfigurationError, CacheUnavailable: a server can't be started or used.
    """
    for name in options.only:
        if name not in GROUPS:
            raise BenchError(f"no group {name!r}; there are {', '.join(GROUPS)}")
    make_folder(options.out)
    with ExitStack() as stack:
        servers = stack.enter_context(running_servers(options.redis_url))
        versions, by_broker = {"server": servers.version}, {}
        for kind in options.broker.kinds:
            by_broker[kind] = servers
            if kind is BrokerKind.RABBITMQ:
                rabbitmq = stack.enter_context(RabbitMqServer.start())
                by_broker[kind] = replace(servers, broker_url=rabbitmq.url)
                versions["rabbitmq-server"] = rabbitmq.version
        graph = GraphTarget({}, "none")
        if options.only != [duplicates.GROUP]:
            graph = stack.enter_context(graph_target(options.neo4j_uri, options.scale.warm_up_loads))
        scale = options.scale
        about = provenance(
            POOLS if options.only == [POOLS] else "worker", options, rounds=scale.rounds,
            servers=versions | {"graph": graph.title},
            more={"redis": servers.title, "messages_in_one_go": scale.messages, "samples": scale.samples},
        )  # fmt: skip
        results = measured(_groups(options, servers, by_broker, graph), console)
    present(options.out, about, results, console)


def _groups(
    options: WorkerOptions, servers: Servers, by_broker: dict[BrokerKind, Servers], graph: GraphTarget
) -> Iterator[tuple[str, Callable[[], Result]]]:
    wanted = options.only or USUAL
    for kind, its_servers in by_broker.items():
        if RATES in wanted:
            yield f"{RATES}-{kind}", partial(measured_rates, kind, its_servers, graph, options)
        if POOLS in wanted:
            yield f"{POOLS}-{kind}", partial(measured_pools, kind, its_servers, graph, options)
        if LATENCY in wanted:
            yield f"{LATENCY}-{kind}", partial(measured_latency, kind, its_servers, graph, options)
    if duplicates.GROUP in wanted:
        yield duplicates.GROUP, partial(measured_duplicates, servers, options)
