"""Queries whose loads a test observes and controls from another process, through lists in its own Redis database.

``calls:<key>`` has an element for each load that began; a load with a ``hold`` waits there until the test opens its
gate; ``script:<key>`` says how the next loads end (``fail``, else they succeed). Each query may hold all slots of its
worker, since tests hold as many of its loads at a time.
"""

from __future__ import annotations

import os
from typing import Any

import redis

from refresher import UNCHANGED, Previous, Result, TransientFailure, query

CONTROL_URL = "TEST_CONTROL_REDIS_URL"
# Twice as long as any test waits. Installed releases run a copy of this file, without the other helpers of tests.
GATE_SECONDS = 240 * float(os.environ.get("TEST_PATIENCE", "1"))


def control_redis() -> redis.Redis:
    """Connect to the test's Redis, with a long timeout: a held load waits there for longer than redis-py's default."""
    return redis.Redis.from_url(os.environ[CONTROL_URL], decode_responses=True, socket_timeout=2 * GATE_SECONDS)


def _load(key: str, hold: str) -> dict[str, Any]:
    with control_redis() as control:
        number = control.rpush(f"calls:{key}", os.getpid())
        control.rpush("order", key)
        if hold:
            control.blpop([f"gate:{hold}"], timeout=GATE_SECONDS)
        if control.lpop(f"script:{key}") == "fail":
            raise TransientFailure("scripted")
    return {"key": key, "load": number}


@query("short_lived", ttl="300ms", slots=64, grace="10m")
def short_lived(tx: Any, key: str, hold: str = "") -> dict[str, Any]:
    """Return a value that grows stale during a test."""
    return _load(key, hold)


@query("long_lived", ttl="1h", slots=64, grace="1h")
def long_lived(tx: Any, key: str, hold: str = "") -> dict[str, Any]:
    """Return a value that only an invalidation makes stale."""
    return _load(key, hold)


@query("tagged", ttl="1h", slots=64, grace="1h", tags=lambda value, key, hold="": [f"key:{key}", "all"])
def tagged(tx: Any, key: str, hold: str = "") -> dict[str, Any]:
    """Return a value that an invalidation of its tags makes stale."""
    return _load(key, hold)


@query("fails_half_of_the_time", ttl="300ms", slots=64, grace="10m")
def fails_half_of_the_time(tx: Any, key: str, seed: int) -> dict[str, Any]:
    """Fail by a seeded coin, differently at each load of a key."""
    import random

    value = _load(key, "")
    if random.Random(f"{seed}:{key}:{value['load']}").random() < 0.5:  # noqa: S311
        raise TransientFailure("tails")
    return value


@query("watched", ttl="2s", slots=64, grace="10m")
def watched(tx: Any, key: str) -> dict[str, Any]:
    """Read the graph, and notice when two loads of one key overlap."""
    with control_redis() as control:
        if control.incr(f"running:{key}") > 1:
            control.incr("overlaps")
        try:
            number = control.rpush(f"calls:{key}", os.getpid())
            return {"key": key, "load": number, "row": tx.run("RETURN $key AS key", key=key).data()}
        finally:
            control.decr(f"running:{key}")


@query("from_graph", ttl="1h", slots=64, grace="1h", degree="MATCH (p:Item {name: $name}) RETURN COUNT { (p)--() }")
def from_graph(tx: Any, name: str) -> list[dict[str, Any]]:
    """Read the graph; the query has a degree."""
    return tx.run("MATCH (p:Item {name: $name}) RETURN p.name AS name, p.version AS version", name=name).data()


@query(
    "revised", ttl="1h", slots=64, grace="1h", version_cypher="MATCH (p:Item {name: $name}) RETURN p.version, p.gone"
)
def revised(tx: Any, name: str) -> list[dict[str, Any]]:
    """Read the graph if the version has changed."""
    with control_redis() as control:
        control.rpush(f"calls:{name}", os.getpid())
    return from_graph(tx, name)


@query("revised_together", ttl="1h", slots=64, grace="1h", batch=10, conditional=True)
def revised_together(tx: Any, calls: list[dict[str, str]], previous: list[Previous | None]) -> list[Any]:
    """Return versions of items; the loader itself checks which are unchanged."""
    names = [call["name"] for call in calls]
    rows = tx.run("UNWIND $names AS name MATCH (p:Item {name: name}) RETURN name, p.version AS version", names=names)
    versions = {row["name"]: row["version"] for row in rows}
    return [
        UNCHANGED if before and before.value == [versions[name]] and before.version == versions[name]
        else Result([versions[name]], version=versions[name])
        for name, before in zip(names, previous, strict=True)
    ]  # fmt: skip


@query("slow_in_graph", ttl="1h", slots=64, grace="1h")
def slow_in_graph(tx: Any) -> list[dict[str, Any]]:
    """Read for longer than any transaction timeout of a test."""
    return tx.run(
        "UNWIND range(1, 100000) AS a UNWIND range(1, 100000) AS b WITH a, b WHERE a * b = -1 RETURN count(*) AS n"
    ).data()


@query("unencodable", ttl="1h", slots=64, grace="1h")
def unencodable(tx: Any) -> object:
    """Return a value that a payload can't represent."""
    return object()


@query("syntax_error", ttl="1h", slots=64, grace="1h")
def syntax_error(tx: Any) -> list[dict[str, Any]]:
    """Run invalid Cypher."""
    return tx.run("MATCH this is no Cypher").data()
