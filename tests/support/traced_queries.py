"""Queries for traces: with constant and generated Cypher texts, and one whose first attempt is late."""

from __future__ import annotations

import time
from typing import Any

from refresher import TransientFailure, query
from tests.support.scripted_queries import control_redis

IN_CODE = "RETURN $person AS name"
BUDGET_SECONDS = 5.0  # enough for a load on a slow machine, even after more than half of it is over


@query("friends_of", ttl="1h", slots=64, grace="1h", degree="RETURN 3 AS degree")
def friends_of(tx: Any, person: str) -> list[dict[str, Any]]:
    """Query twice: once by a constant text, once by one that contains the param."""
    rows: list[dict[str, Any]] = tx.run(IN_CODE, person=person).data()
    return rows + tx.run(f"RETURN '{person}' AS name").data()


@query("late_at_first", ttl="1h", slots=64, grace="1h")
def late_at_first(tx: Any, person: str) -> str:
    """Fail once, when more than half of the budget is over: the next attempt needs another message."""
    with control_redis() as control:
        if control.incr("late_at_first") == 1:
            time.sleep(BUDGET_SECONDS * 0.52)
            raise TransientFailure(f"nobody knows {person} yet")
    return tx.run(IN_CODE, person=person).single()["name"]


@query("always_fails", ttl="1h", slots=64, grace="1h")
def always_fails(tx: Any, person: str) -> None:
    """Fail with a text that contains the param, as the graph's error does."""
    tx.run(f"RETRUN '{person}'").consume()
