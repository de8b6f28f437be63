"""What `refresher doctor` looks at, from where it is run: cache, broker, workers, graph, and how they are set up.

Each check says what is wrong in a sentence, and how to mend it in another. None raises.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final
from urllib.parse import urlsplit

import redis
from redis.exceptions import NoPermissionError, RedisError

from api_client import lease
from api_client.broker import CeleryBroker
from api_client.broker_settings import miss_queue, publisher_settings, refresh_queue
from api_client.cluster_client import node_of
from api_client.environment import without_password
from api_client.errors import ConfigurationError
from api_client.explain_text import duration
from api_client.keys import CacheKey, make_key
from api_client.lease import ClaimStatus
from api_client.lease_store import LeaseStore
from api_client.redis_edge import connect, reason
from api_client.settings import ReaderSettings
from refresher.checks import graph_problem
from refresher.dead_keys import DeadKeys, Standing
from refresher.findings import Finding, Level
from refresher.queries import import_queries, registry
from refresher.rights import forbidden, rights
from refresher.settings import WorkerSettings

TIMEOUT_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 2.0
"""How long workers have to answer: nobody knows how many there are."""

OLDEST_REDIS: Final = (6, 2)
MOST_CLOCK_SECONDS: Final = 1.0
DOCTOR_KEY: Final = "refresher.doctor"


def findings(worker: WorkerSettings, reader: ReaderSettings) -> Iterator[Finding]:
    """Look at everything, one thing after another."""
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
        yield _dead_keys(client, worker)
    except (RedisError, OSError) as error:
        yield _unreachable("cache", "CACHE_REDIS_URL", worker.redis_url, error)
    finally:
        client.close()
    yield from _broker(worker, reader, cache_run_id)
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
    policy, bound = str(info.get("maxmemory_policy", "")), int(info.get("maxmemory", 0))
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
        return Finding(
            "eviction", Level.WARNING, "noeviction: once the memory is full every refresh fails",
            "CONFIG SET maxmemory-policy allkeys-lru",
        )  # fmt: skip
    return Finding("eviction", Level.OK, f"{policy}, {bound:,} bytes")


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


def _dead_keys(client: redis.Redis, settings: WorkerSettings) -> Finding:
    try:
        standings = [dead.standing for dead in DeadKeys(client, settings).all()]
    except NoPermissionError as error:
        return forbidden("dead letters", error)
    open_, quarantined = sum(one is not Standing.REFRESHED for one in standings), standings.count(Standing.QUARANTINED)
    if not open_:
        return Finding("dead letters", Level.OK, "none that is open")
    return Finding(
        "dead letters", Level.WARNING, f"keys that were given up: {open_}, of them in quarantine: {quarantined}",
        "refresher dead list",
    )  # fmt: skip


def _broker(settings: WorkerSettings, reader: ReaderSettings, cache_run_id: str) -> Iterator[Finding]:
    with closing(CeleryBroker(settings.broker_url, settings.namespace)) as broker:
        try:
            waiting = broker.waiting()
        except Exception as error:  # noqa: BLE001 - whatever a broker raises
            yield _unreachable("broker", "CELERY_BROKER_URL", settings.broker_url, error)
            return
    if waiting > reader.queue_size:
        yield Finding(
            "broker", Level.WARNING, f"{waiting} refreshes wait, more than {reader.queue_size}: early ones are dropped",
            "start more workers, or find out what they wait for",
        )  # fmt: skip
    else:
        yield Finding("broker", Level.OK, f"answers: {waiting} refreshes wait")
    if urlsplit(settings.broker_url).scheme in {"redis", "rediss"}:
        yield _broker_memory(settings, cache_run_id)
    yield _workers(settings)


def _broker_memory(settings: WorkerSettings, cache_run_id: str) -> Finding:
    client = connect(settings.broker_url, timeout_seconds=TIMEOUT_SECONDS)
    try:
        info = client.info()
    except (RedisError, OSError) as error:
        return Finding("broker's memory", Level.WARNING, f"could not be looked at: {reason(error)}", "allow INFO")
    finally:
        client.close()
    policy = str(info.get("maxmemory_policy", ""))
    if policy != "noeviction":
        return Finding(
            "broker's memory", Level.PROBLEM, f"{policy} drops queues once the memory is full",
            "CONFIG SET maxmemory-policy noeviction, on a server of its own",
        )  # fmt: skip
    if info.get("run_id") == cache_run_id:
        return Finding(
            "broker's memory", Level.WARNING, "broker and cache are one server: one of them has the wrong policy",
            "a server each: allkeys-lru for the cache, noeviction for the broker",
        )  # fmt: skip
    return Finding("broker's memory", Level.OK, policy)


def _workers(settings: WorkerSettings) -> Finding:
    from amqp.exceptions import AccessRefused  # type: ignore[import-untyped]  # py-amqp has no types
    from celery import Celery

    start = "celery -A refresher worker, with the same CELERY_BROKER_URL and CACHE_NAMESPACE"
    app = Celery("refresher-doctor", set_as_current=False)
    app.conf.update(publisher_settings(settings.broker_url, TIMEOUT_SECONDS))
    try:
        queues_of = app.control.inspect(timeout=ANSWER_SECONDS).active_queues() or {}
    except Exception as error:  # noqa: BLE001 - whatever a broker raises
        if isinstance(error, NoPermissionError | AccessRefused):
            return forbidden("workers", error)
        return Finding("workers", Level.PROBLEM, f"can't be asked: {type(error).__name__}", start)
    finally:
        app.close()
    wanted = {make(settings.namespace, settings.broker_url) for make in (miss_queue, refresh_queue)}
    ours = sorted(name for name, queues in queues_of.items() if wanted <= {queue["name"] for queue in queues})
    if ours:
        return Finding("workers", Level.OK, f"{len(ours)} consume: {', '.join(ours)[:200]}")
    why = f"{len(queues_of)} answer, none consumes {' and '.join(sorted(wanted))}" if queues_of else "none answers"
    return Finding("workers", Level.PROBLEM, f"{why}: nothing is refreshed", start)


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
        return Finding("graph", Level.OK, "answers")
    return Finding("graph", Level.PROBLEM, problem, "check NEO4J_URI, NEO4J_USER and NEO4J_PASSWORD, and that it is up")


def _unreachable(check: str, variable: str, url: str, error: Exception) -> Finding:
    found: BaseException = error if isinstance(error, RedisError | OSError) else error.__cause__ or error
    why = reason(found) if isinstance(found, RedisError | OSError) else type(error).__name__
    mend = "start it, or correct the variable"
    if isinstance(found, NoPermissionError):
        mend = "give its user that right: the templates of deploy/redis have all that are needed"
    return Finding(check, Level.PROBLEM, f"{variable}={without_password(url)} can't be used: {why}", mend)


def _key(settings: WorkerSettings) -> CacheKey:
    return make_key(settings.namespace, DOCTOR_KEY, None, 1)
