"""Checks of cache, broker, graph and queries, logged at a worker's start, and repeated by its health and doctor.

A worker starts in any case, since a missing part may be there in a moment.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlsplit

from neo4j.exceptions import DriverError, Neo4jError
from redis.exceptions import NoPermissionError, RedisError

from api_client.config.broker import queues
from api_client.config.broker_url import SENTINEL_TRANSPORT, is_rabbitmq
from api_client.config.environment import without_password
from api_client.config.redis_url import read_url
from api_client.config.settings import ReaderSettings
from api_client.config.spelling import nearest
from api_client.errors import ConfigurationError
from api_client.protocol.keys import make_key
from api_client.transport.redis_py import connect
from api_client.transport.wire import reason
from refresher.errors import LoadFailed
from refresher.graph.loader import Graph
from refresher.ops.broker import broker_place
from refresher.ops.permissions import Permissions, user_of
from refresher.queries import AUTO, Query, registry
from refresher.settings import WorkerSettings

if TYPE_CHECKING:
    from celery import Celery

log: Final = logging.getLogger(__name__)

TIMEOUT_SECONDS = 2.0
_LIKE_A_SETTING: Final = 0.9  # one letter in ten wrong, or two exchanged, since most variables are not ours
_NEXT_URL: Final = re.compile(r";(?=[a-z]+://)")  # kombu's alternates; a password may contain a semicolon
READY_KEY: Final = "refresher.ready"
GREEN_POOLS: Final = ("gevent", "eventlet")


def log_problems(settings: WorkerSettings, app: Celery | None = None, pool: type | None = None) -> list[str]:
    """Log problems around a starting worker of ``app`` with this pool, with their remedies; return the texts."""
    checks = [cache_problem(settings), graph_problem(settings)]
    if not len(registry):
        named = f"REFRESHER_QUERIES={settings.queries!r} names the modules that use @query"
        checks.append(f"no query is registered: {named}")
    if app is not None:
        checks.append(queue_problem(app, settings))
    if pool is not None:
        checks.append(pool_problem(pool))
    problems = [problem for problem in checks if problem]
    problems += [
        f"{name} is not a setting, and has no effect: did you mean {meant}?" for name, meant in misspelled_settings()
    ]
    for problem in problems:
        log.error("%s", problem)
    if checks[1] is None:
        _warn_of_coarse_tags(settings)
    if defaults := ", ".join(params_with_defaults(registry)):
        log.warning(
            "loaders have params with defaults: %s; a read that leaves one out has another entry "
            "than one that gives it, and is invalidated by itself; cached_query fills them in",
            defaults,
        )
    return problems


def _warn_of_coarse_tags(settings: WorkerSettings) -> None:
    if not any(query.tags == AUTO for query in registry):
        return
    from refresher.feed.auto.texts import coarse_queries, look_up

    with suppress(ConfigurationError, Neo4jError, DriverError):  # the graph answered a moment ago
        for query, why in coarse_queries(look_up(registry, settings)).items():
            log.warning("%s: tags=%r finds coarse tags only (%s); see refresher queries --tags", query, AUTO, why)


def params_with_defaults(queries: Iterable[Query]) -> list[str]:
    """Return the optional params of loaders, each as ``query(param)``."""
    return [f"{query.name}({name})" for query in queries for name in query.optional_params]


def misspelled_settings() -> Iterator[tuple[str, str]]:
    """Yield the environment's variables that nearly match a setting's name, each with that name."""
    known = ReaderSettings.variables() | WorkerSettings.variables()
    for name in sorted(os.environ.keys() - known):
        if near := nearest(name, known, at_least=_LIKE_A_SETTING):
            yield name, near


def pool_problem(pool: type) -> str | None:
    """Return the objection to this Celery pool, as text, or None."""
    name = pool.__module__.rpartition(".")[2]
    if name not in GREEN_POOLS:
        return None
    return (
        f"the pool {name} is slow: from a broker on Redis, Celery takes at most -c messages every two seconds with it, "
        "and it may not end on SIGTERM: use -P threads, or the default"
    )


def queue_problem(app: Celery, settings: WorkerSettings) -> str | None:
    """Return the reason why a worker of ``app`` gets no refreshes, as text, or None if it consumes their queues."""
    names = [queue.name for queue in queues(settings.namespace, settings.broker_url)]
    if not any(name in app.amqp.queues.consume_from for name in names):
        return (
            f"this worker consumes neither {' nor '.join(names)}, and gets no refresh: call refresher.install(app) "
            "when the app is configured, and name them where -Q names queues"
        )
    own = app.conf.broker_url
    if isinstance(own, str) and _servers_of(own).isdisjoint(_servers_of(settings.broker_url)):
        return (
            f"this worker consumes from {without_password(own)}, and readers publish to {broker_place(settings)}: "
            "refreshes arrive only if both are the same broker"
        )
    return None


def _servers_of(url: str) -> set[tuple[object, ...]]:
    """Return the identifying parts of a broker's URL, one for each of several Sentinels or nodes."""
    if "+sentinel://" in url:
        parsed = read_url(url)
        database = urlsplit(parsed.node_url).path.strip("/") or "0"
        return {("sentinel", host, port, database) for host, port in parsed.members}
    return {_server_of(one) for one in _NEXT_URL.split(url)}


def _server_of(url: str) -> tuple[object, ...]:
    parts = urlsplit(url)
    if parts.scheme in {"unix", "redis+socket"}:
        options = dict(parse_qsl(parts.query))
        return "unix", parts.path, options.get("db") or options.get("virtual_host") or "0"
    host = "127.0.0.1" if parts.hostname in {None, "localhost"} else parts.hostname
    default = {"redis": 6379, "rediss": 6379, "sentinel": 26379, "amqp": 5672, "amqps": 5671}.get(parts.scheme)
    scheme = "sentinel" if parts.scheme == SENTINEL_TRANSPORT else parts.scheme
    return scheme, host, parts.port or default, parts.path.strip("/") or "0"


def cache_problem(settings: WorkerSettings) -> str | None:
    """Return the cache's problem, as text, or None if it is reachable and writable, and its user may refresh."""
    key = make_key(settings.namespace, READY_KEY, None, 1).entry
    try:
        with closing(connect(settings.redis_url, timeout_seconds=TIMEOUT_SECONDS)) as client:
            granted = Permissions(client, settings.namespace)
            with suppress(NoPermissionError):  # named below with all others
                # Changes nothing, since there is no such key, but a replica and a full server refuse it.
                client.set(key, b"", xx=True)
            missing, missing_to_notify = " ".join(granted.missing_for_workers()), " ".join(granted.missing_to_notify())
    except (RedisError, OSError) as error:
        url, why = without_password(settings.redis_url), reason(error, settings.redis_url)
        return f"the cache at CACHE_REDIS_URL={url} can't be used: {why}; refreshes fail until it can"
    user = user_of(settings.redis_url)
    if missing:
        return (
            f"the user {user} of CACHE_REDIS_URL lacks permissions that refreshes may need: {missing}; such refreshes "
            f"fail until it has them: ACL SETUSER {user} {missing}"
        )
    if missing_to_notify:
        return (
            f"the user {user} of CACHE_REDIS_URL lacks the permission {missing_to_notify}: commits are stored, but "
            f"readers that wait for them are not notified, and poll; ACL SETUSER {user} {missing_to_notify}"
        )
    return None


def broker_memory_problem(settings: WorkerSettings) -> str | None:
    """Return the reason why a broker on Redis takes no messages, as text; None if it does, or is not a Redis."""
    if is_rabbitmq(settings.broker_url):
        return None
    try:
        with closing(connect(settings.broker_url, timeout_seconds=TIMEOUT_SECONDS)) as client:
            # As above. A full server still reports its queue lengths.
            client.set(f"{settings.namespace}.{READY_KEY}", b"", xx=True)
    except NoPermissionError:
        return None  # a user who may publish need not have this permission
    except (RedisError, OSError) as error:
        return f"the broker at {broker_place(settings)} can't be used: {reason(error, settings.broker_url)}"
    return None


def graph_problem(settings: WorkerSettings) -> str | None:
    """Return the graph's problem, as text, or None if the configured user can use the configured database."""
    try:
        with closing(Graph(settings)) as graph:
            graph.verify()
    except ConfigurationError as error:
        return str(error)
    except LoadFailed as error:
        where = (
            f"NEO4J_URI={without_password(settings.neo4j_uri)}, NEO4J_USER={settings.neo4j_user}, "
            f"NEO4J_DATABASE={settings.neo4j_database or '(default)'}"
        )
        follows = "refreshes are retried until it can" if error.is_transient else "refreshes fail"
        return f"the graph at {where} can't be used ({error.kind}): {error}{_graph_hint(settings, error)}; {follows}"
    return None


def _graph_hint(settings: WorkerSettings, error: LoadFailed) -> str:
    if error.kind == "auth" and not settings.neo4j_password:
        return "; NEO4J_PASSWORD is not set"
    if error.kind == "graph_unavailable" and settings.neo4j_uri.startswith("neo4j"):
        bolt = settings.neo4j_uri.partition(":")[0].replace("neo4j", "bolt")
        return f"; by neo4j:// the driver goes to the addresses that a cluster advertises: for a single server use {bolt}://"
    return ""
