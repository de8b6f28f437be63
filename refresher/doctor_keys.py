"""What `refresher doctor` finds of keys: what can't be read; what waits, runs or fails now; what was given up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import redis
from redis.exceptions import NoPermissionError

from api_client.explain_text import duration
from api_client.publication import REPUBLISH_SECONDS
from refresher.dead_keys import DeadKeys, Standing
from refresher.findings import Finding, Level
from refresher.rights import forbidden
from refresher.settings import WorkerSettings
from refresher.status_keys import KeysSeen, QueryKeys, Run, look_at_keys

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
    kinds = Counter(kind for standing, kind in standings if standing is not Standing.REFRESHED)
    if not kinds:
        return Finding("dead letters", Level.OK, "none that is open")
    quarantined = sum(standing is Standing.QUARANTINED for standing, _ in standings)
    said = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    mend = f"{_MEND_OF_KIND.get(kinds.most_common(1)[0][0], '')} refresher dead list".strip()
    return Finding(
        "dead letters", Level.WARNING, f"keys that were given up: {said}; of them in quarantine: {quarantined}", mend
    )
