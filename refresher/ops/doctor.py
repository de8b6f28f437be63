"""What `refresher doctor` looks at, from where it is run: cache, readers, broker, workers, graph, how they are set up.

Each check says what is wrong in a sentence, and how to mend it in another. None raises.
"""

from __future__ import annotations

import http.client
import re
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import redis
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from api_client.config.broker import miss_queue, queues, refresh_queue
from api_client.config.settings import ReaderSettings
from api_client.errors import ConfigurationError
from api_client.explain import duration
from api_client.protocol import lease
from api_client.protocol.keys import CacheKey, make_key
from api_client.protocol.lease import ClaimStatus
from api_client.transport.connection_maker import READER, read_name
from api_client.transport.redis_py import connect, node_of, open_pubsub, reason
from api_client.transport.scripts import LeaseStore
from api_client.trigger.claim_and_publish import REPUBLISH_SECONDS
from refresher.ops.broker import queues_of
from refresher.ops.broker_keys import replaced_keys
from refresher.ops.checks import graph_problem
from refresher.ops.dead_keys import DeadKeys, KeyStatus
from refresher.ops.findings import FULL_SHARE, Finding, Level, forbidden, rights, unreachable, used_share
from refresher.ops.health_client import ask_health, get
from refresher.ops.scan import KeysSeen, QueryKeys, Run, look_at_keys, nodes_of
from refresher.queries import import_queries, registry
from refresher.settings import WorkerSettings


def of_broker(
    settings: WorkerSettings,
    reader: ReaderSettings,
    cache_run_id: str,
    *,
    timeout_seconds: float,
    answer_seconds: float,
) -> Iterator[Finding]:
    """Look at the broker, then at what can be found through it.

    Args:
        settings: where it is.
        reader: how many refreshes may wait.
        cache_run_id: the cache's, to see whether it is the same server.
        timeout_seconds: for each step.
        answer_seconds: how long workers have to answer: nobody knows how many there are.
    """
    is_redis = urlsplit(settings.broker_url).scheme in {"redis", "rediss"}
    replaced = _replaced_keys(settings, timeout_seconds) if is_redis else []
    yield from replaced
    try:
        waiting = queues_of(settings)
    except Exception as error:  # noqa: BLE001 - whatever a broker raises
        if not replaced:
            yield unreachable("broker", "CACHE_BROKER_URL", settings.broker_url, error)
        return
    said = f"{waiting.refresh} refreshes wait, and {waiting.miss} for which readers wait"
    mend = "start more workers, or find out what they wait for"
    if waiting.refresh > reader.queue_size:
        dropped = f"{said}; early ones are dropped beyond {reader.queue_size}"
        yield Finding("broker", Level.WARNING, dropped, mend)
    elif waiting.miss > reader.queue_size:
        yield Finding("broker", Level.WARNING, said, mend)
    else:
        yield Finding("broker", Level.OK, f"answers: {said}")
    if is_redis:
        yield _memory(settings, cache_run_id, timeout_seconds)
    yield _workers(settings, timeout_seconds, answer_seconds)


def _replaced_keys(settings: WorkerSettings, timeout_seconds: float) -> list[Finding]:
    client = connect(settings.broker_url, timeout_seconds=timeout_seconds)
    names = [queue.name for queue in queues(settings.namespace, settings.broker_url)]
    try:
        return [Finding("broker's keys", Level.PROBLEM, key.fault, key.remedy) for key in replaced_keys(client, names)]
    except NoPermissionError as error:
        return [forbidden("broker's keys", error)]
    except (RedisError, OSError):
        return []  # the next check says so
    finally:
        client.close()


def _memory(settings: WorkerSettings, cache_run_id: str, timeout_seconds: float) -> Finding:
    client = connect(settings.broker_url, timeout_seconds=timeout_seconds)
    try:
        info = client.info()
    except (RedisError, OSError) as error:
        return Finding("broker's memory", Level.WARNING, f"could not be looked at: {reason(error)}", "allow INFO")
    finally:
        client.close()
    policy, used = str(info.get("maxmemory_policy", "")), used_share(info)
    if policy != "noeviction":
        return Finding(
            "broker's memory", Level.PROBLEM, f"{policy} drops queues once the memory is full",
            "CONFIG SET maxmemory-policy noeviction, on a server of its own",
        )  # fmt: skip
    if used >= FULL_SHARE:
        return Finding(
            "broker's memory", Level.PROBLEM, f"it is full ({used:.0%} of maxmemory): nothing can be published",
            "find out what fills it (redis-cli --bigkeys), start workers if it is the queues, or raise maxmemory",
        )  # fmt: skip
    if info.get("run_id") == cache_run_id:
        return Finding(
            "broker's memory", Level.WARNING, "broker and cache are one server: one of them has the wrong policy",
            "a server each: allkeys-lru for the cache, noeviction for the broker",
        )  # fmt: skip
    return Finding("broker's memory", Level.OK, f"{policy}, {used:.0%} used" if info.get("maxmemory") else policy)


def _workers(settings: WorkerSettings, timeout_seconds: float, answer_seconds: float) -> Finding:
    from amqp.exceptions import AccessRefused  # type: ignore[import-untyped]  # py-amqp has no types

    from api_client.trigger.private_app import PublishingApp

    start = "celery -A refresher worker, with the same CACHE_BROKER_URL and CACHE_NAMESPACE"
    app = PublishingApp.to(settings.broker_url, timeout_seconds)
    try:
        queues_of_each = app.control.inspect(timeout=answer_seconds).active_queues() or {}
    except Exception as error:  # noqa: BLE001 - whatever a broker raises
        if isinstance(error, NoPermissionError | AccessRefused):
            return forbidden("workers", error)
        cause = error.__cause__ or error
        why = reason(cause) if isinstance(cause, RedisError | OSError) else type(cause).__name__
        return Finding("workers", Level.PROBLEM, f"can't be asked: {why}", "mend the broker; then ask again")
    finally:
        app.close()
    wanted = {make(settings.namespace, settings.broker_url) for make in (miss_queue, refresh_queue)}
    ours = sorted(name for name, queues in queues_of_each.items() if wanted <= {queue["name"] for queue in queues})
    if ours:
        return Finding("workers", Level.OK, f"{len(ours)} consume: {', '.join(ours)[:200]}")
    others = f"{len(queues_of_each)} answer, none consumes {' and '.join(sorted(wanted))}"
    return Finding(
        "workers", Level.PROBLEM, f"{others if queues_of_each else 'none answers'}: nothing is refreshed", start
    )


_ONLINE: Final = re.compile(rb"^flower_worker_online\{.*\} 1\.0$", re.MULTILINE)
_NO_PATH: Final = "this needs Flower's own address, not that of a proxy, which does well to block /metrics"


def flower(url: str) -> Finding:
    """Ask Flower for its health, and for the workers that it takes to be online. Nothing needs it: no problem.

    It forgets a worker after an hour: whether one is there now, the line on workers tells.

    Args:
        url: as `readable` takes it.
    """
    where = readable(url)
    shown = f"{where.scheme}://{where.netloc}{where.path}"
    try:
        _get(where, "/healthcheck")
        workers = len(_ONLINE.findall(_get(where, "/metrics")))
    except (OSError, http.client.HTTPException) as error:
        why = str(error) or type(error).__name__
        mend = "start it, or read its log; without it refreshes go on, and nobody sees them one by one"
        return Finding("flower", Level.WARNING, f"no Flower at {shown}: {why}", mend)
    if workers:
        return Finding("flower", Level.OK, f"answers at {shown}; workers that it has heard of: {workers}")
    return Finding(
        "flower", Level.WARNING, f"answers at {shown}, and has heard of no worker",
        "is a worker there, and has Flower the same CACHE_BROKER_URL, as a user who may listen?",
    )  # fmt: skip


def readable(url: str) -> SplitResult:
    """Return the parts of Flower's URL.

    Raises:
        ValueError: it is no http or https URL, or has a password, which Flower asks for neither here.
    """
    allowed = "allowed is http://HOST:PORT, without a password: what is asked there needs none"
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0 and not parts.username
    except ValueError:
        raise ValueError(allowed) from None
    if not is_good or parts.query:
        raise ValueError(allowed)
    return parts._replace(path=parts.path.rstrip("/"))


def _get(where: SplitResult, path: str) -> bytes:
    over_tls = where.scheme == "https"
    port = where.port or (http.client.HTTPS_PORT if over_tls else http.client.HTTP_PORT)
    status, body = get(where.hostname or "", port, where.path + path, over_tls=over_tls)
    if status != HTTPStatus.OK:
        raise ConnectionError(f"{path} is answered with {status}: {_NO_PATH}")
    return body


_MARK: Final = b"\nrefresher_ready{"
_DROPPED: Final = re.compile(rb'^refresher_messages_dropped_total\{reason="(\w+)"\} ([0-9.e+]+)$', re.MULTILINE)
_LOOK: Final = "look at the worker and its log: not running, stopped, or another process has the port"

_STRANGERS: Final = "something else writes into the queues, or a release that this one does not know: its log says what"


def of_this_host(settings: WorkerSettings) -> Iterator[Finding]:
    """Ask the worker of this host for its health and its metrics; nothing without a port."""
    if settings.health_port:
        yield _health(settings)
    if settings.metrics_port:
        yield _metrics(settings)


def _health(settings: WorkerSettings) -> Finding:
    where = f"CACHE_HEALTH_PORT={settings.health_port}"
    try:
        is_good, record = ask_health(settings.health_address, settings.health_port, "/ready")
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = str(error) or type(error).__name__
        return Finding("worker here", Level.PROBLEM, f"no health at {where}: {why}", _LOOK)
    if is_good:
        return Finding("worker here", Level.OK, "ready")
    wrong = "; ".join(f"{part}: {said}" for part, said in record["checks"].items() if said != "ok")
    return Finding("worker here", Level.PROBLEM, f"not ready, {wrong}", "mend that, or the worker's own environment")


def _metrics(settings: WorkerSettings) -> Finding:
    where = f"CACHE_METRICS_PORT={settings.metrics_port}"
    try:
        _, body = get(settings.metrics_address, settings.metrics_port, "/metrics")
    except (OSError, http.client.HTTPException) as error:
        return Finding("metrics here", Level.WARNING, f"none at {where}: {str(error) or type(error).__name__}", _LOOK)
    if _MARK not in body:
        return Finding("metrics here", Level.WARNING, f"what listens at {where} is no worker", _LOOK)
    dropped = {reason.decode(): int(float(count)) for reason, count in _DROPPED.findall(body)}
    if any(dropped.values()):
        why = ", ".join(f"{count} {reason}" for reason, count in dropped.items() if count)
        return Finding(
            "metrics here", Level.WARNING, f"since it began it has dropped messages unread: {why}", _STRANGERS
        )
    return Finding("metrics here", Level.OK, f"served at {where}")


LONG_RUN_SHARE: Final = 0.5
"""Of the budget of an attempt."""

_MEND_OF_KIND: Final = {
    "unknown_query": "a worker lacks the query: the same REFRESHER_QUERIES and release for all; then",
    "loader_error": "the query's own code fails, the worker's log says how: mend it, restart the workers; then",
    "syntax": "correct the query's Cypher, restart the workers; then",
    "too_large": "have the query return less, or raise CACHE_MAX_VALUE_BYTES for readers and workers; then",
    "timeout": "make the query quicker, or raise CACHE_XFETCH_TIMEOUT; then",
    "auth": "correct NEO4J_USER and NEO4J_PASSWORD of the workers; then",
    "graph_unavailable": "see to the graph; then",
}


def of_keys(client: redis.Redis, settings: WorkerSettings) -> Iterator[Finding]:
    """Say what is slow or fails now, of the keys that a bounded look finds, and which entries can't be read."""
    seen = look_at_keys(client, settings.namespace)
    if seen.problem:
        yield Finding("refreshes", Level.WARNING, f"not looked at: {seen.problem}", "sign in as operator")
        return
    yield _entries(seen)
    yield _refreshes(seen, settings)


def _entries(seen: KeysSeen) -> Finding:
    read, unreadable = sum(row.headers for row in seen.queries.values()), sum(seen.unreadable.values())
    if not unreadable:
        return Finding("entries", Level.OK, f"{read} looked at, all readable")
    why = ", ".join(f"{count} {reason}" for reason, count in seen.unreadable.items())
    is_newer = not seen.unreadable.keys().isdisjoint({"version", "flags"})
    return Finding(
        "entries", Level.WARNING, f"of {read + unreadable} looked at, readers take {unreadable} for misses: {why}",
        "the workers are of a newer release than this one: deploy the readers" if is_newer
        else "something else writes there: CACHE_REDIS_URL and CACHE_NAMESPACE are for these readers and workers alone",
    )  # fmt: skip


def _refreshes(seen: KeysSeen, settings: WorkerSettings) -> Finding:
    rows = list(seen.queries.values())
    wrong = list(_wrong(rows, seen.runs, settings))
    if wrong:
        mend = "refresher status shows which; more workers, or see why they are slow or gone"
        return Finding("refreshes", Level.WARNING, "; ".join(wrong), mend)
    queued, running = sum(row.queued for row in rows), sum(row.running for row in rows)
    return Finding("refreshes", Level.OK, f"{queued} queued, {running} running, none for long")


def _wrong(rows: list[QueryKeys], runs: list[Run], settings: WorkerSettings) -> Iterator[str]:
    longest = max((row.longest_wait or 0.0 for row in rows), default=0.0)
    if longest > REPUBLISH_SECONDS:  # a reader has published it once more
        yield f"{sum(row.queued for row in rows)} are queued, the oldest for {duration(longest)}"
    slow = [run for run in runs if run.lasts > LONG_RUN_SHARE * settings.budget_seconds]
    if slow:
        yield f"{slow[0].query} is under way for {duration(slow[0].lasts)}"
    if retrying := sum(row.retrying for row in rows):
        yield f"{retrying} failed and will be tried again"
    if lapsed := sum(row.lapsed for row in rows):
        yield f"{lapsed} were lost: a worker or a message is gone"


def dead_keys(client: redis.Redis, settings: WorkerSettings) -> Finding:
    """Say how many keys were given up and not refreshed since, and why."""
    try:
        standings = [(dead.standing, dead.letter.kind) for dead in DeadKeys(client, settings).all()]
    except NoPermissionError as error:
        return forbidden("dead letters", error)
    kinds = Counter(kind for standing, kind in standings if standing is not KeyStatus.REFRESHED)
    if not kinds:
        return Finding("dead letters", Level.OK, "none that is open")
    quarantined = sum(standing is KeyStatus.QUARANTINED for standing, _ in standings)
    said = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    mend = f"{_MEND_OF_KIND.get(kinds.most_common(1)[0][0], '')} refresher dead list".strip()
    return Finding(
        "dead letters", Level.WARNING, f"keys that were given up: {said}; of them in quarantine: {quarantined}", mend
    )


QUIET_SECONDS: Final = 10
"""Shorter silences are not worth a word."""


def readers(client: redis.Redis) -> Finding:
    """Say how many processes of readers are connected, and of which releases."""
    try:
        found = [one for node in nodes_of(client) for one in node.client_list()]
    except NoPermissionError as error:
        return forbidden("readers", error)
    except ResponseError as error:
        return Finding("readers", Level.WARNING, f"can't be counted: {reason(error)}", "allow CLIENT LIST")
    ours = [(process, int(one.get("idle", 0))) for one in found if (process := _process_of(one)) is not None]
    if not ours:
        return Finding(
            "readers", Level.WARNING, "none is connected to this cache",
            "an application connects at its first read: does one run? Try its CACHE_REDIS_URL with --as-reader",
        )  # fmt: skip
    releases = Counter(version for version, _, _ in {process for process, _ in ours})
    said = ", ".join(f"{count} of {version}" for version, count in sorted(releases.items()))
    quiet_seconds = min(idle_seconds for _, idle_seconds in ours)
    quiet = f"; none has asked for {duration(quiet_seconds)}" if quiet_seconds >= QUIET_SECONDS else ""
    return Finding("readers", Level.OK, f"processes that are connected: {said}{quiet}")


def _process_of(connection: dict[str, str]) -> tuple[str, str, str] | None:
    """Return version, process and host of a reader's connection: two containers may have the same names inside."""
    name = read_name(connection.get("name", ""))
    if name is None or name.who != READER:
        return None
    return name.version, name.process, connection.get("addr", "").rpartition(":")[0]


TIMEOUT_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 2.0
"""How long workers have to answer."""

OLDEST_REDIS: Final = (6, 2)
MAX_CLOCK_SKEW_SECONDS: Final = 1.0
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
    if off_seconds > MAX_CLOCK_SKEW_SECONDS:
        return Finding(
            "clock", Level.WARNING, f"this machine's clock and Redis' are {duration(off_seconds)} apart",
            "run a time service on both: decisions go by Redis' clock, logs and the graph by their own",
        )  # fmt: skip
    return Finding("clock", Level.OK, f"{duration(off_seconds)} from Redis'")


def _bus(client: redis.Redis, settings: WorkerSettings) -> Finding:
    """Listen on a channel of the kind that readers wait on, and publish to it."""
    channel, sent = _key(settings).channel, uuid.uuid4().hex.encode()
    try:
        with open_pubsub(client) as listener:
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
