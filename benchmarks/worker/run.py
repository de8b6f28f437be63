"""Run of the groups, over the servers that they need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from api_client import CacheError
from benchmarks.apparatus.servers import Servers, running_servers
from benchmarks.errors import BenchError
from benchmarks.reports import report
from benchmarks.reports.provenance import make_folder, provenance
from benchmarks.reports.results import Figure, Result
from benchmarks.worker import duplicates
from benchmarks.worker.command import BrokerKind, WorkerOptions
from benchmarks.worker.duplicates import measured_duplicates
from benchmarks.worker.latency import measured_latency
from benchmarks.worker.rates import measured_rates
from benchmarks.worker.worker_proc import GraphTarget, graph_target
from refresher.embedded import EmbeddedServerError
from refresher.embedded.rabbitmq_server import RabbitMqServer

if TYPE_CHECKING:
    from rich.console import Console

RATES: Final = "rates"
LATENCY: Final = "latency"
GROUPS: Final = (RATES, LATENCY, duplicates.GROUP)


def run_worker(options: WorkerOptions, console: Console) -> None:
    """Measure what the options select. Ctrl-C ends it; the groups that were measured by then are shown and kept.

    Raises:
        BenchError: a group that does not exist, a folder that can't be written, or, when all else has been measured and
            kept, a group that failed.
        EmbeddedServerError, ConfigurationError, CacheUnavailable: a server can't be started or used.
    """
    unknown = [name for name in options.only if name not in GROUPS]
    if unknown:
        raise BenchError(f"no group {unknown[0]!r}; there are {', '.join(GROUPS)}")
    make_folder(options.out)
    results: list[Result] = []
    with _started_servers(options) as servers:
        content = _provenance(options, servers)
        for name, measure in _measurements(options, servers):
            console.print(f"{name} …", style="dim")
            try:
                results.append(_measured(name, measure))
            except KeyboardInterrupt:
                if not results:
                    raise
                console.print(report.INTERRUPTED)
                break
    report.present(options.out, content, results, console)
    if failed := [result.group for result in results if not result.tables]:
        raise BenchError(f"not measured: {', '.join(failed)}; the table says why")


@dataclass(frozen=True, slots=True)
class _StartedServers:
    """``here`` has Redis as broker; ``places`` are the same with each selected broker."""

    here: Servers
    places: Mapping[BrokerKind, Servers]
    graph: GraphTarget
    versions: Mapping[str, str]


@contextmanager
def _started_servers(options: WorkerOptions) -> Iterator[_StartedServers]:
    with ExitStack() as stack:
        here = stack.enter_context(running_servers(options.redis_url))
        places, versions = {}, {"redis-server": here.version}
        for kind in options.broker.kinds:
            places[kind] = here
            if kind is BrokerKind.RABBITMQ:
                server = stack.enter_context(RabbitMqServer.start())
                places[kind] = replace(here, broker_url=server.url)
                versions["rabbitmq-server"] = server.version
        graph = GraphTarget({}, "none")
        if options.only != (duplicates.GROUP,):
            graph = stack.enter_context(graph_target(options.neo4j_uri))
        yield _StartedServers(here, places, graph, versions | {"graph": graph.title})


def _measurements(options: WorkerOptions, servers: _StartedServers) -> Iterator[tuple[str, Callable[[], Result]]]:
    wanted = options.only or GROUPS
    for kind, here in servers.places.items():
        if RATES in wanted:
            yield f"{RATES}-{kind}", partial(measured_rates, kind, here, servers.graph, options)
        if LATENCY in wanted:
            yield f"{LATENCY}-{kind}", partial(measured_latency, kind, here, servers.graph, options)
    if duplicates.GROUP in wanted:
        yield duplicates.GROUP, partial(measured_duplicates, servers.here, options)


def _measured(name: str, measure: Callable[[], Result]) -> Result:
    try:
        return measure()
    except (BenchError, CacheError, EmbeddedServerError) as error:
        # What the other groups have measured, or will, is kept.
        return Result(name, name, figures=(Figure("all", (), note=str(error)),))


def _provenance(options: WorkerOptions, servers: _StartedServers) -> dict[str, Any]:
    left_out = ("out", "redis_url", "neo4j_uri", "seed", "rounds")
    used = {name: value for name, value in asdict(options).items() if name not in left_out}
    scale = options.scale
    used |= {
        "only": ", ".join(options.only) or "all",
        "redis": servers.here.title, "messages_in_one_go": scale.messages, "samples": scale.samples,
    }  # fmt: skip
    return provenance("worker", seed=options.seed, rounds=scale.rounds, options=used, servers=servers.versions)
