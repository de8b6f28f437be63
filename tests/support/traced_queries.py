"""Queries for traces: with constant and generated Cypher texts, and one that is retried by another message."""

from __future__ import annotations

import os
from typing import Any

from refresher import TransientFailure, query
from refresher.flow import refresh
from refresher.telemetry import setup
from tests.support.scripted_queries import control_redis
from tests.support.waiting import MAX_WAIT_SECONDS

IN_CODE = "RETURN $person AS name"

if "CACHE_OTEL" in os.environ:  # a worker has no fixtures
    setup.FLUSH_SECONDS = refresh.RETRY_SLACK_SECONDS = MAX_WAIT_SECONDS  # type: ignore[misc]


@query("friends_of", ttl="1h", slots=64, grace="1h", degree="RETURN 3 AS degree")
def friends_of(tx: Any, person: str) -> list[dict[str, Any]]:
    """Query twice: once by a constant text, once by one that contains the param."""
    rows: list[dict[str, Any]] = tx.run(IN_CODE, person=person).data()
    return rows + tx.run(f"RETURN '{person}' AS name").data()


@query("fails_at_first", ttl="1h", slots=64, grace="1h")
def fails_at_first(tx: Any, person: str) -> str:
    """Fail once, where no pause fits in place: the next attempt needs another message."""
    with control_redis() as control:
        if control.incr("fails_at_first") == 1:
            refresh.MAX_PAUSE_IN_PLACE_SECONDS = 0.0  # type: ignore[misc]
            raise TransientFailure(f"nobody knows {person} yet")
    return tx.run(IN_CODE, person=person).single()["name"]


@query("always_fails", ttl="1h", slots=64, grace="1h")
def always_fails(tx: Any, person: str) -> None:
    """Fail with a text that contains the param, as the graph's error does."""
    tx.run(f"RETRUN '{person}'").consume()
