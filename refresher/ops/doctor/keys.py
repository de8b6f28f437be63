"""Checks of the cache's content and connections: readers, entries, refreshes, dead letters, tags."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from redis.exceptions import NoPermissionError, ResponseError

from api_client.explain import duration
from api_client.transport.connection_maker import READER, read_name
from api_client.transport.redis_py import nodes_of
from api_client.transport.wire import reason
from api_client.trigger.claim_and_publish import REPUBLISH_SECONDS
from refresher.ops.dead_keys import DeadKeys, KeyStatus
from refresher.ops.doctor.deployment import Deployment
from refresher.ops.doctor.findings import AS_OPERATOR, Finding, ok, warning

MIN_SILENCE_SECONDS: Final = 10
"""Shortest silence of all readers that is reported."""
LONG_RUN_SHARE: Final = 0.5
"""Share of an attempt's time budget beyond which a load is slow."""
LARGE_TAG: Final = 500_000
"""Number of a tag's members beyond which it is reported."""
INVALIDATE_SECONDS: Final = 20e-6
_REMEDIES: Final = {
    "unknown_query": "a worker lacks the query: the same REFRESHER_QUERIES and release for all; then",
    "loader_error": "the query's own code fails; the worker's log says where: fix it, and restart the workers; then",
    "syntax": "correct the query's Cypher, and restart the workers; then",
    "too_large": "have the query return less, or raise CACHE_MAX_VALUE_BYTES for readers and workers; then",
    "timeout": "make the query quicker, or raise CACHE_XFETCH_TIMEOUT; then",
    "auth": "correct NEO4J_USER and NEO4J_PASSWORD of the workers; then",
    "graph_unavailable": "see to the graph; then",
}


def readers(deployment: Deployment) -> Finding:
    """Count the processes of readers that are connected, by release."""
    try:
        connections = [one for node in nodes_of(deployment.cache) for one in node.client_list()]
    except NoPermissionError:
        raise
    except ResponseError as error:  # CLIENT was renamed
        return warning(f"can't be counted: {reason(error)}", "allow CLIENT LIST")
    ours = [(process, int(one.get("idle", 0))) for one in connections if (process := _process_of(one)) is not None]
    if not ours:
        return warning(
            "none is connected to this cache",
            "an application connects at its first read: is one running? Try its CACHE_REDIS_URL with --as-reader",
        )
    releases = Counter(version for version, _, _ in {process for process, _ in ours})
    counts = ", ".join(f"{count} of {version}" for version, count in sorted(releases.items()))
    idle_seconds = min(idle_seconds for _, idle_seconds in ours)
    idle = f"; no request for {duration(idle_seconds)}" if idle_seconds >= MIN_SILENCE_SECONDS else ""
    return ok(f"processes connected: {counts}{idle}")


def _process_of(connection: dict[str, str]) -> tuple[str, str, str] | None:
    """Return version, process and host of a reader's connection, as two containers may use the same names inside."""
    name = read_name(connection.get("name", ""))
    if name is None or name.role != READER:
        return None
    return name.version, name.process, connection.get("addr", "").rpartition(":")[0]


def entries(deployment: Deployment) -> Finding:
    """Count the entries that no reader can read, among those of a bounded scan."""
    seen = deployment.keys
    read, unreadable = sum(row.headers for row in seen.queries.values()), sum(seen.unreadable.values())
    if not unreadable:
        return ok(f"{read} sampled, all readable")
    why = ", ".join(f"{count} {reason}" for reason, count in seen.unreadable.items())
    is_newer = not seen.unreadable.keys().isdisjoint({"version", "flags"})
    return warning(
        f"of {read + unreadable} sampled, {unreadable} are unreadable and count as misses: {why}",
        "the workers are of a newer release than this one: deploy the readers" if is_newer
        else "something else writes there: CACHE_REDIS_URL and CACHE_NAMESPACE are for these readers and workers alone",
    )  # fmt: skip


def refreshes(deployment: Deployment) -> Finding:
    """Report refreshes that are slow, failing or lost now, among the keys of a bounded scan."""
    if faults := list(_faults(deployment)):
        return warning(
            "; ".join(faults), "refresher status shows which; start more workers, or find out why they are slow or gone"
        )
    rows = deployment.keys.queries.values()
    queued, running = sum(row.queued for row in rows), sum(row.running for row in rows)
    return ok(f"{queued} queued, {running} running, none for long")


def _faults(deployment: Deployment) -> Iterator[str]:
    rows = deployment.keys.queries.values()
    longest = max((row.longest_wait or 0.0 for row in rows), default=0.0)
    if longest > REPUBLISH_SECONDS:  # a reader has published it once more by then
        yield f"{sum(row.queued for row in rows)} queued, the oldest for {duration(longest)}"
    slow_seconds = LONG_RUN_SHARE * deployment.worker.budget_seconds
    if slow := next((run for run in deployment.keys.runs if run.lasts > slow_seconds), None):
        yield f"{slow.query} has been running for {duration(slow.lasts)}"
    if retrying := sum(row.retrying for row in rows):
        yield f"{retrying} failed and will be retried"
    if lapsed := sum(row.lapsed for row in rows):
        yield f"{lapsed} lost: a worker or a message is gone"


def dead_letters(deployment: Deployment) -> Finding:
    """Count the keys whose refresh was abandoned, and that have not been refreshed since, by cause."""
    dead_keys = [(dead.status, dead.letter.kind) for dead in DeadKeys(deployment.cache, deployment.worker).all()]
    kinds = Counter(kind for status, kind in dead_keys if status is not KeyStatus.REFRESHED)
    if not kinds:
        return ok("none open")
    quarantined = sum(status is KeyStatus.QUARANTINED for status, _ in dead_keys)
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return warning(
        f"open: {counts}; {quarantined} of them in quarantine",
        f"{_REMEDIES.get(kinds.most_common(1)[0][0], '')} refresher dead list".strip(),
    )


def tags(deployment: Deployment) -> Finding:
    """Check the preconditions of tag invalidations: the eviction policy, workers that finish them, small indexes."""
    seen, policy = deployment.keys.tags, str(deployment.info.get("maxmemory_policy", ""))
    if seen is None:
        return warning("skipped: this user of CACHE_REDIS_URL may not see them", AS_OPERATOR)
    if seen.overdue:
        return warning(
            f"invalidations of tags that are pending for long: {seen.overdue}",
            "workers finish them: start one of this release, or see in its log why it can't",
        )
    if not seen.indexes:
        return ok("none in use")
    if policy.startswith("allkeys-") and int(deployment.info.get("maxmemory", 0)):
        return warning(
            f"{policy} may evict what is known of a tag; its invalidations then miss entries",
            "CONFIG SET maxmemory-policy volatile-lru, which spares it",
        )
    sizes = f"{seen.indexes} seen, the largest has {seen.largest:,} members"
    if seen.largest > LARGE_TAG:
        return warning(
            f"{sizes}: an invalidation takes Redis about {duration(seen.largest * INVALIDATE_SECONDS)}",
            "use finer tags, or a new version= to drop all values of a query",
        )
    return ok(f"{sizes}; pending invalidations: {seen.pending}")
