"""Environment of a run: an embedded Redis, an embedded graph, and their variables."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from api_client.transport.redis_py import connect, nodes_of
from refresher.demo.options import GraphServer
from refresher.embedded import ArcadeDbServer, RedisServer
from refresher.embedded.neo4j_server import Neo4jWithApoc
from refresher.graph.driver import open_driver
from refresher.ops.doctor.deployment import server_title
from refresher.settings import WorkerSettings

if TYPE_CHECKING:
    import neo4j

    from refresher.demo.options import DemoOptions

LEASE_SECONDS: Final = 2.0
QUEUE_TTL_SECONDS: Final = 5.0
_CONNECTION_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 10.0
_MAX_WORKERS: Final = 4
_PACE: Final = {
    # The demo's TTLs are a few seconds, for which there is no early refresh by default.
    "CACHE_XFETCH_MIN_TTL": "0",
    # A killed worker's leftovers expire within these times, and the demo is short.
    "STAMPEDE_LOCK_TIMEOUT_MS": f"{LEASE_SECONDS * 1000:g}",
    "CACHE_QUEUE_TTL": f"{QUEUE_TTL_SECONDS:g}",
    # A read of a cold key while there is no worker has to wait for the next one.
    "STAMPEDE_WAIT_TIMEOUT_MS": "20000",
    # Everything runs on one small machine, where a pause of a quarter of a second does not mean that Redis is gone.
    "CACHE_REDIS_TIMEOUT": "2",
}


@dataclass(frozen=True, slots=True)
class Environment:
    """The servers of a run. ``environ`` is the whole environment of all its processes, including passwords.

    ``graph_title`` and ``redis_title`` name the servers for the user.
    """

    environ: dict[str, str]
    settings: WorkerSettings
    driver: neo4j.Driver
    graph_title: str
    redis_title: str

    @property
    def database(self) -> str | None:
        """The graph's database; None is the default one."""
        return self.settings.neo4j_database or None


@contextmanager
def started_environment(options: DemoOptions) -> Iterator[Environment]:
    """Start the embedded servers.

    Raises:
        EmbeddedServerError: a server did not start.
        ConfigurationError: a setting in the environment is wrong.
    """
    environ = _environment(options)
    WorkerSettings.from_env(environ)  # a wrong setting is reported before anything starts
    with RedisServer.start() as server, graph_server(environ, options.graph_server) as (driver, graph_title):
        environ["CACHE_REDIS_URL"], environ["CACHE_BROKER_URL"] = server.url(0), server.url(1)
        with connect(server.url(0), timeout_seconds=_CONNECTION_SECONDS) as client:
            redis_title = f"embedded {server_title(nodes_of(client)[0].info('server'))}"
        yield Environment(environ, WorkerSettings.from_env(environ), driver, graph_title, redis_title)


def _environment(options: DemoOptions) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("NEO4J_")}  # never a user's graph
    environ = {**own, **_PACE, "REFRESHER_QUERIES": "refresher.demo.queries"}
    environ.setdefault("CACHE_XFETCH_WORKERS", str(min(_MAX_WORKERS, (os.cpu_count() or 1) + 1)))
    # Never an application's namespace, after which its queues are named too.
    environ["CACHE_NAMESPACE"] = f"demo-{secrets.token_hex(4)}"
    environ["CACHE_FEED"] = str(options.feed).lower()
    return environ


@contextmanager
def graph_server(
    environ: dict[str, str], kind: GraphServer = GraphServer.ARCADEDB
) -> Iterator[tuple[neo4j.Driver, str]]:
    """Start an embedded graph, write its variables NEO4J_… into ``environ``, and yield a driver and a title.

    Raises:
        EmbeddedServerError: the server did not start.
    """
    # Neo4j warns that a graph without persons has no label Person, which is intended.
    logging.getLogger("neo4j.notifications").setLevel(logging.ERROR)
    with Neo4jWithApoc.start() if kind is GraphServer.NEO4J else ArcadeDbServer.start() as server:
        environ |= server.environ
        with open_driver(WorkerSettings.from_env(environ), retry_seconds=_RETRY_SECONDS) as driver:
            yield driver, f"embedded {_version(driver)}"


def _version(driver: neo4j.Driver) -> str:
    agent = driver.get_server_info().agent
    # ArcadeDB calls itself "Neo4j/5.26.0 compatible (ArcadeDB 26.10.2)".
    _, _, inside = agent.rpartition("(")
    return inside.rstrip(")") if "ArcadeDB" in inside else agent.replace("/", " ")
