"""Queries of the system on the documentation's pictures: three that succeed, and one that fails after a while.

PICTURED_FAILS_FROM is the time from which it fails (Unix time, s). Only workers import this: other tests use the same
names.
"""

from __future__ import annotations

import os
import time
from typing import Any

from refresher import query


@query("friends_of", ttl="20s", grace="1h")
def friends_of(tx: Any, person_id: int) -> list[dict[str, Any]]:
    """Take as long as a query of one step."""
    return _answer(tx, seconds=0.3)


@query("paths_between", ttl="30s", grace="1h")
def paths_between(tx: Any, person_id: int) -> list[dict[str, Any]]:
    """Take as long as one of several steps."""
    return _answer(tx, seconds=0.8)


@query("recommended_for", ttl="40s", grace="1h")
def recommended_for(tx: Any, person_id: int) -> list[dict[str, Any]]:
    """Take longer than the others."""
    return _answer(tx, seconds=1.5)


@query("groups_of", ttl="15s", grace="1h")
def groups_of(tx: Any, person_id: int) -> list[str]:
    """Count on a property that a release has renamed."""
    rows = tx.run("RETURN 'friends' AS name").data()
    return [row["name" if time.time() < float(os.environ["PICTURED_FAILS_FROM"]) else "title"] for row in rows]


def _answer(tx: Any, seconds: float) -> list[dict[str, Any]]:
    time.sleep(seconds)  # as for a graph on another machine: the readers need this one's processors
    return tx.run("RETURN 'Ada' AS name").data()
