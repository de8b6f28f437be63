"""Environment of a run: an embedded Redis, a graph, embedded or the user's, and their variables."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import neo4j
from neo4j.exceptions import DriverError, Neo4jError

from api_client.config.environment import without_password
from api_client.transport.redis_py import connect, nodes_of
from refresher.demo.errors import DemoError
from refresher.demo.options import GraphServer
from refresher.embedded import ArcadeDbServer, RedisServer
from refresher.embedded.neo4j_server import Neo4jWithApoc
from refresher.graph.driver import open_driver
from refresher.ops.doctor.deployment import server_title
from refresher.settings import WorkerSettings

if TYPE_CHECKING:
    import neo4j

    from refresher.demo.graph.social_graph import SocialGraph
    from refresher.demo.options import DemoOptions

LEASE_SECONDS: Final = 2.0
QUEUE_TTL_SECONDS: Final = 5.0
_CONNECTION_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 10.0
_MAX_WORKERS: Final = 4
_PACE: Final = {
    # The demo's TTLs are a few seconds, which by default have no early refresh.
    "CACHE_XFETCH_MIN_TTL": "0",
    # What a killed worker leaves behind expires within these, and the demo is short.
    "STAMPEDE_LOCK_TIMEOUT_MS": f"{LEASE_SECONDS * 1000:g}",
    "CACHE_QUEUE_TTL": f"{QUEUE_TTL_SECONDS:g}",
    # A read of a cold key while there is no worker has to wait for the next one.
    "STAMPEDE_WAIT_TIMEOUT_MS": "20000",
    # Everything runs on one small machine: a pause of a quarter of a second does not mean that Redis is gone.
    "CACHE_REDIS_TIMEOUT": "2",
}


@dataclass(slots=True)
class Environment:
    """The servers of a run. ``environ`` is the whole environment of all its processes, passwords included.

    ``graph_title`` and ``redis_title`` name the servers for the user. ``loading`` is set once the demo has begun to
    write into the graph: until then nothing in it is ours to remove.
    """

    environ: dict[str, str]
    settings: WorkerSettings
    driver: neo4j.Driver
    graph_title: str
    redis_title: str
    loading: SocialGraph | None = None

    @property
    def database(self) -> str | None:
        """The graph's database; None is the user's home database."""
        return self.settings.neo4j_database or None


@contextmanager
def started_environment(options: DemoOptions) -> Iterator[Environment]:
    """Start the embedded servers; at the end remove everything of the demo from the user's graph.

    Raises:
        EmbeddedServerError: a server did not start.
        ConfigurationError: an address, or a setting in the environment, is wrong.
        DemoError: the user's graph can't be used.
    """
    environ = _environment(options)
    WorkerSettings.from_env(environ)  # a wrong setting is reported before anything starts
    with (
        RedisServer.start() as server,
        graph_server(environ, options.neo4j_uri, options.graph_server) as (driver, graph_title),
    ):
        environ["CACHE_REDIS_URL"], environ["CACHE_BROKER_URL"] = server.url(0), server.url(1)
        with connect(server.url(0), timeout_seconds=_CONNECTION_SECONDS) as client:
            redis_title = f"embedded {server_title(nodes_of(client)[0].info('server'))}"
        settings = WorkerSettings.from_env(environ)
        found = Environment(environ, settings, driver, graph_title, redis_title)
        try:
            yield found
        finally:
            if options.neo4j_uri and found.loading is not None:
                remove_graph(driver, found.database, found.loading.persons)


def _environment(options: DemoOptions) -> dict[str, str]:
    environ = {**os.environ, **_PACE, "REFRESHER_QUERIES": "refresher.demo.queries"}
    environ.setdefault("CACHE_XFETCH_WORKERS", str(min(_MAX_WORKERS, (os.cpu_count() or 1) + 1)))
    # Never the namespace of an application: the queues are named after it too.
    environ["CACHE_NAMESPACE"] = f"demo-{secrets.token_hex(4)}"
    environ["CACHE_FEED"] = str(options.feed).lower()
    if options.neo4j_uri:
        environ["NEO4J_URI"] = options.neo4j_uri
    return environ


@contextmanager
def graph_server(
    environ: dict[str, str], neo4j_uri: str | None, kind: GraphServer = GraphServer.ARCADEDB
) -> Iterator[tuple[neo4j.Driver, str]]:
    """Start an embedded graph, or use the user's; yield a driver, and a title.

    Args:
        environ: the variables NEO4J_… of an embedded graph are written into it; the user's are read from it.
        neo4j_uri: the user's, as in ``environ``; None: an embedded one.
        kind: of the embedded one.

    Raises:
        EmbeddedServerError: it did not start.
        ConfigurationError, DemoError: the user's can't be used.
    """
    # Neo4j notifies that a graph without persons has no label Person, as intended.
    logging.getLogger("neo4j.notifications").setLevel(logging.ERROR)
    with ExitStack() as stack:
        if not neo4j_uri:
            server = Neo4jWithApoc.start() if kind is GraphServer.NEO4J else ArcadeDbServer.start()
            stack.enter_context(server)
            environ |= server.environ
        settings = WorkerSettings.from_env(environ)
        driver = stack.enter_context(open_driver(settings, retry_seconds=_RETRY_SECONDS))
        version = _version(driver)
        yield driver, f"{version} at {without_password(neo4j_uri)}" if neo4j_uri else f"embedded {version}"


def _version(driver: neo4j.Driver) -> str:
    try:
        agent = driver.get_server_info().agent
    except (DriverError, Neo4jError, OSError) as error:
        raise _unusable(error) from error
    # ArcadeDB calls itself "Neo4j/5.26.0 compatible (ArcadeDB 26.10.2)".
    _, _, inside = agent.rpartition("(")
    return inside.rstrip(")") if "ArcadeDB" in inside else agent.replace("/", " ")


def _unusable(error: Exception) -> DemoError:
    return DemoError(f"the graph can't be used: {str(error).splitlines()[0].rstrip(':')}")


log: Final = logging.getLogger(__name__)

_BATCH: Final = 500
# One batch per transaction: all at once would exceed a small server's memory.
_REMOVE: Final = """
MATCH (p:Person) WHERE p.id >= $first AND p.id < $next AND p.version IS NOT NULL
DETACH DELETE p
"""


def remove_graph(driver: neo4j.Driver, database: str | None, persons: int) -> None:
    """Remove the persons that the demo has loaded, whose ids count from 0, and their relationships."""
    try:
        with driver.session(database=database) as session:
            for first in range(0, persons, _BATCH):
                session.run(_REMOVE, first=first, next=first + _BATCH).consume()
    except (DriverError, Neo4jError) as error:
        log.error("the demo's persons could not all be removed from the graph: %s", error)
