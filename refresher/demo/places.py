"""Where the demo runs: its own Redis and graph, or one's own, and the environment that tells everyone of them."""

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
from api_client.config.redis_url import Topology, read_url
from api_client.transport.redis_py import connect, translated
from refresher.demo.errors import DemoError
from refresher.demo.tidying import remove_graph, remove_keys
from refresher.embedded import ArcadeDbServer, RedisServer
from refresher.graph.driver import open_driver
from refresher.ops.addresses import with_password
from refresher.settings import WorkerSettings

if TYPE_CHECKING:
    from refresher.demo.options import DemoOptions
    from refresher.demo.social_graph import SocialGraph

LEASE_SECONDS: Final = 2.0
QUEUE_TTL_SECONDS: Final = 5.0
_CONNECTION_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 10.0
_MAX_WORKERS: Final = 4
_PACE: Final = {
    # The demo's TTLs are a few seconds; by default those have no early refresh.
    "CACHE_XFETCH_MIN_TTL": "0",
    # What a killed worker leaves behind is noticed within these, and the demo is short.
    "STAMPEDE_LOCK_TIMEOUT_MS": f"{LEASE_SECONDS * 1000:g}",
    "CACHE_QUEUE_TTL": f"{QUEUE_TTL_SECONDS:g}",
    # A cold key that is asked for while there is no worker has to wait for the next one.
    "STAMPEDE_WAIT_TIMEOUT_MS": "20000",
    # Everything runs on one small machine here: a pause of a quarter of a second is no sign of a dead Redis.
    "CACHE_REDIS_TIMEOUT": "2",
}


@dataclass(slots=True)
class Places:
    """The servers of a run. ``environ`` is the whole environment of all its processes, passwords included.

    ``graph_title`` and ``redis_title`` say in words which servers these are. ``loading`` is set once the demo has
    begun to write into the graph: until then nothing in it is ours to remove.
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
def places(options: DemoOptions) -> Iterator[Places]:
    """Start what is to be started, and say where all is; in the end nothing of the demo is left in one's own servers.

    Raises:
        EmbeddedServerError: a server did not start.
        ConfigurationError: an address, or a setting in the environment, is wrong.
        CacheUnavailable, DemoError: one's own server can't be used.
    """
    environ = _environment(options)
    WorkerSettings.from_env(environ)  # what is wrong is said before anything starts
    with _redis(environ, options), graph_server(environ, options.neo4j_uri) as (driver, graph_title):
        settings = WorkerSettings.from_env(environ)
        redis_title = without_password(options.redis_url) if options.redis_url else "embedded"
        found = Places(environ, settings, driver, graph_title, redis_title)
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
    if options.redis_url:
        environ["CACHE_REDIS_URL"] = with_password(options.redis_url, environ)
        if _can_be_broker(options.redis_url):
            environ["CACHE_BROKER_URL"] = environ["CACHE_REDIS_URL"]
    if options.neo4j_uri:
        environ["NEO4J_URI"] = options.neo4j_uri
    return environ


@contextmanager
def _redis(environ: dict[str, str], options: DemoOptions) -> Iterator[None]:
    if not options.redis_url:
        with RedisServer.start() as server:
            environ["CACHE_REDIS_URL"], environ["CACHE_BROKER_URL"] = server.url(0), server.url(1)
            yield
        return
    with ExitStack() as stack:
        if not _can_be_broker(options.redis_url):
            environ["CACHE_BROKER_URL"] = stack.enter_context(RedisServer.start()).url(1)
        client = stack.enter_context(connect(environ["CACHE_REDIS_URL"], timeout_seconds=_CONNECTION_SECONDS))
        stack.enter_context(translated())
        client.ping()
        try:
            yield
        finally:
            remove_keys(client, environ["CACHE_NAMESPACE"])


def _can_be_broker(redis_url: str) -> bool:
    """Tell whether a cache can be the broker as well: kombu knows neither Sentinels' URLs of ours nor clusters."""
    return read_url(redis_url).topology is Topology.SINGLE


@contextmanager
def graph_server(environ: dict[str, str], neo4j_uri: str | None) -> Iterator[tuple[neo4j.Driver, str]]:
    """Start an embedded graph, or use one's own; yield a driver, and what it is in words.

    Args:
        environ: NEO4J_URI and what belongs to it are written into it, for an embedded one; else read.
        neo4j_uri: one's own, as in ``environ``; None: an embedded one.

    Raises:
        EmbeddedServerError: it did not start.
        ConfigurationError, DemoError: one's own can't be used.
    """
    # Neo4j notes that a graph without persons knows no label Person; that is how we want it.
    logging.getLogger("neo4j.notifications").setLevel(logging.ERROR)
    with ExitStack() as stack:
        if not neo4j_uri:
            environ |= stack.enter_context(ArcadeDbServer.start()).environ
        settings = WorkerSettings.from_env(environ)
        user, password = settings.neo4j_user, settings.neo4j_password
        driver = stack.enter_context(open_driver(settings, user, password, retry_seconds=_RETRY_SECONDS))
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
