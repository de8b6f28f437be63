"""What `refresher doctor` looks at, from where it is run: cache, readers, broker, workers, graph, how they are set up.

Each check says what is wrong in a sentence, and how to mend it in another. None raises.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any, Final

import redis
from redis.exceptions import NoPermissionError, RedisError

from api_client import lease
from api_client.cluster_client import node_of
from api_client.errors import ConfigurationError
from api_client.explain_text import duration
from api_client.keys import CacheKey, make_key
from api_client.lease import ClaimStatus
from api_client.lease_store import LeaseStore
from api_client.redis_edge import connect, reason
from api_client.settings import ReaderSettings
from refresher.checks import graph_problem
from refresher.doctor_broker import of_broker
from refresher.doctor_flower import flower
from refresher.doctor_host import of_this_host
from refresher.doctor_keys import dead_keys, of_keys
from refresher.doctor_readers import readers
from refresher.findings import FULL_SHARE, Finding, Level, unreachable, used_share
from refresher.queries import import_queries, registry
from refresher.rights import forbidden, rights
from refresher.settings import WorkerSettings

TIMEOUT_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 2.0
"""How long workers have to answer."""

OLDEST_REDIS: Final = (6, 2)
MOST_CLOCK_SECONDS: Final = 1.0
DOCTOR_KEY: Final = "refresher.doctor"


def findings(
    worker: WorkerSettings, reader: ReaderSettings, *, flower_url: str = "", as_reader: bool = False
) -> Iterator[Finding]:
    """Look at everything, one thing after another.

    Args:
        worker, reader: where everything is, and its bounds.
        flower_url: where Flower is; "": it is not looked at.
        as_reader: leave out what a reader has nothing to do with: others' keys, queries, graph, this host's worker.
    """
    cache_run_id = ""
    client = connect(worker.redis_url, timeout_seconds=TIMEOUT_SECONDS)
    try:
        # Of a cluster it looks at one node.
        node = node_of(client, _key(worker).entry)
        yield rights(node, worker.redis_url, worker.namespace)
        try:
            info = node.info()
        except NoPermissionError as error:
            yield forbidden("cache", error)
        else:
            cache_run_id = str(info.get("run_id", ""))
            yield _server(info)
            yield _eviction(info)
        yield _clock(node)
        yield _bus(node, worker)
        yield _steps(client, worker)
        if not as_reader:
            yield readers(client)
            yield from of_keys(client, worker)
            yield dead_keys(client, worker)
    except (RedisError, OSError) as error:
        yield unreachable("cache", "CACHE_REDIS_URL", worker.redis_url, error)
    finally:
        client.close()
    yield from of_broker(worker, reader, cache_run_id, timeout_seconds=TIMEOUT_SECONDS, answer_seconds=ANSWER_SECONDS)
    if flower_url:
        yield flower(flower_url)
    if not as_reader:
        yield from of_this_host(worker)
        yield from _queries(worker)
        yield _graph(worker)


def _server(info: dict[str, Any]) -> Finding:
    version = str(info["redis_version"])
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_REDIS:
        return Finding("cache", Level.PROBLEM, f"Redis {version} is too old", "use Redis 6.2 or later")
    if info.get("role") == "slave":
        return Finding(
            "cache", Level.PROBLEM, "the server is a replica: nothing can be written",
            "let CACHE_REDIS_URL name the master, or its Sentinels",
        )  # fmt: skip
    return Finding("cache", Level.OK, f"answers: Redis {version}")


def _eviction(info: dict[str, Any]) -> Finding:
    policy, bound, used = str(info.get("maxmemory_policy", "")), int(info.get("maxmemory", 0)), used_share(info)
    if policy == "volatile-ttl":
        return Finding(
            "eviction", Level.PROBLEM,
            "volatile-ttl drops the lease records first: once the memory is full nothing is ever stored",
            "CONFIG SET maxmemory-policy allkeys-lru",
        )  # fmt: skip
    if not bound:
        return Finding(
            "eviction", Level.WARNING, "the cache's memory has no bound",
            "set maxmemory, and maxmemory-policy allkeys-lru",
        )  # fmt: skip
    if policy == "noeviction":
        is_full = used >= FULL_SHARE
        return Finding(
            "eviction", Level.PROBLEM if is_full else Level.WARNING,
            f"noeviction, and {used:.0%} of the memory are used: once it is full every refresh fails",
            "CONFIG SET maxmemory-policy allkeys-lru",
        )  # fmt: skip
    return Finding("eviction", Level.OK, f"{policy}, {bound:,} bytes, {used:.0%} used")


def _clock(client: redis.Redis) -> Finding:
    asked_at = time.time()
    whole_seconds, microseconds = client.time()
    off_seconds = abs(whole_seconds + microseconds / 1e6 - (asked_at + time.time()) / 2)
    if off_seconds > MOST_CLOCK_SECONDS:
        return Finding(
            "clock", Level.WARNING, f"this machine's clock and Redis' are {duration(off_seconds)} apart",
            "run a time service on both: decisions go by Redis' clock, logs and the graph by their own",
        )  # fmt: skip
    return Finding("clock", Level.OK, f"{duration(off_seconds)} from Redis'")


def _bus(client: redis.Redis, settings: WorkerSettings) -> Finding:
    """Listen on a channel of the kind that readers wait on, and publish to it."""
    channel, sent = _key(settings).channel, uuid.uuid4().hex.encode()
    try:
        with client.pubsub() as listener:  # type: ignore[no-untyped-call] # as redis-py declares it
            listener.subscribe(channel)
            listener.get_message(timeout=TIMEOUT_SECONDS)  # that it is subscribed
            client.publish(channel, sent)
            deadline = time.monotonic() + TIMEOUT_SECONDS
            while (left_seconds := deadline - time.monotonic()) > 0:
                message = listener.get_message(timeout=left_seconds)
                if message is not None and message["data"] == sent:
                    return Finding("notifications", Level.OK, "arrive")
    except NoPermissionError as error:
        return forbidden("notifications", error)
    return Finding(
        "notifications", Level.PROBLEM, "a message published on the cache does not arrive",
        "readers that wait find their value by polling, up to a second late: look at what lies between",
    )  # fmt: skip


def _steps(client: redis.Redis, settings: WorkerSettings) -> Finding:
    """Claim a key that nobody reads, and take the claim back: what a reader needs to do."""
    key, claim_id, store = _key(settings), uuid.uuid4().hex, LeaseStore(client)
    try:
        reply = store.run(
            lease.claim(key, claim_id=claim_id, seen_token=None, queue_ttl_seconds=1, retention_seconds=1)
        )
        if reply.status is ClaimStatus.CLAIMED:
            store.run(lease.unclaim(key, claim_id=claim_id, retention_seconds=1))
    except RedisError as error:
        return Finding(
            "lease steps", Level.PROBLEM, f"a claim fails: {reason(error)}", "no refresh can begin until this is mended"
        )
    return Finding("lease steps", Level.OK, "can be taken")


def _queries(settings: WorkerSettings) -> Iterator[Finding]:
    try:
        import_queries(settings.query_modules)
    except ConfigurationError as error:
        yield Finding("queries", Level.PROBLEM, str(error), "mend the module: workers do not start either")
        return
    if len(registry):
        yield Finding("queries", Level.OK, f"{len(registry)} registered")
    else:
        yield Finding(
            "queries", Level.WARNING, f"none is registered here: REFRESHER_QUERIES={settings.queries!r}",
            "REFRESHER_QUERIES names the modules that use @query; workers need it, readers don't",
        )  # fmt: skip


def _graph(settings: WorkerSettings) -> Finding:
    problem = graph_problem(settings)
    if problem is None:
        database = f"database {settings.neo4j_database!r}" if settings.neo4j_database else "default database"
        return Finding("graph", Level.OK, f"the {database} answers the user {settings.neo4j_user!r}")
    return Finding(
        "graph", Level.PROBLEM, problem,
        "check NEO4J_URI, NEO4J_USER, NEO4J_PASSWORD and NEO4J_DATABASE, and that it is up",
    )  # fmt: skip


def _key(settings: WorkerSettings) -> CacheKey:
    return make_key(settings.namespace, DOCTOR_KEY, None, 1)
