"""What a scenario needs beside its readers: the graph, and the workers of this project and of django-cacheback."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

from neo4j import GraphDatabase

from api_client import CacheClient, CacheError
from benchmarks.errors import BenchError
from benchmarks.herd.worker import refresh_worker, running_worker
from benchmarks.stampede.cacheback_job import LANE
from benchmarks.stampede.lanes import Lane
from benchmarks.stampede.strategies.cacheback import Cacheback
from benchmarks.stampede.strategies.ours import QUERY, Ours
from benchmarks.stampede.terms import GraphAddress, Terms
from refresher.demo.graph.social_graph import SocialGraph, load
from refresher.embedded import ArcadeDbServer

_PERSONS: Final = 1_000
_EDGES: Final = 5_000
_WARM_UP_SECONDS: Final = 60.0
_QUERIES: Final = "benchmarks.stampede.queries"
_CACHEBACK: Final = "benchmarks.stampede.cacheback_job"


def loaded(server: ArcadeDbServer, seed: int) -> GraphAddress:
    """Load a graph of 1,000 persons, and return where it is; the person is the best known one."""
    graph = SocialGraph.generated(_PERSONS, _EDGES, seed=seed)
    with GraphDatabase.driver(server.bolt_uri, auth=(server.user, server.password)) as driver:
        load(driver, server.database, graph)
    hub = int(graph.degrees.argmax())
    return GraphAddress(server.bolt_uri, server.user, server.password, server.database, hub)


@contextmanager
def workers(terms: Terms, lanes: Sequence[Lane], graph: ArcadeDbServer | None) -> Iterator[None]:
    """Run the Celery workers that these lanes need: default settings, but for the terms. Ours needs a graph.

    Raises:
        BenchError: one did not start.
    """
    with ExitStack() as stack:
        if graph is not None and any(lane.strategy is Ours for lane in lanes):
            stack.enter_context(refresh_worker(terms.place, graph, _QUERIES, _our_environ(terms)))
            _warm_up(terms)
        for lane in lanes:
            if lane.strategy is Cacheback:
                environ = terms.as_environ() | {LANE: lane.name}
                app = ["-A", _CACHEBACK]
                stack.enter_context(running_worker(terms.place, app, environ))
        yield


def _warm_up(terms: Terms) -> None:
    """Have one value made: what the worker connects to, it does at its first load, which takes seconds when it must.

    Raises:
        BenchError: there was no answer.
    """
    with CacheClient(terms.place.patient_settings()) as client:
        try:
            client.get(QUERY, {"lane": "warm-up", "number": 0}, timeout=_WARM_UP_SECONDS)
        except CacheError as error:
            raise BenchError(f"the worker made no value: {error}") from error


def _our_environ(terms: Terms) -> dict[str, str]:
    return terms.as_environ() | {
        "CACHE_XFETCH_MIN_TTL": "0",  # these values last for seconds, and are to be refreshed early all the same
        "CACHE_XFETCH_BETA": str(terms.beta),
        "CACHE_XFETCH_RND_PRECISION": str(terms.rnd_precision),
        "STAMPEDE_LOCK_TIMEOUT_MS": str(round(terms.lease_seconds * 1000)),
    }
