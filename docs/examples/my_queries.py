"""Queries of the worker.

::

    REFRESHER_QUERIES=my_queries celery -A refresher worker
"""

from __future__ import annotations

from typing import Any

from refresher import query


@query("friends_of", ttl="5m", grace="1h")
def friends_of(tx: Any, person_id: int) -> list[dict[str, Any]]:
    """Return the names of a person's friends."""
    rows: list[dict[str, Any]] = tx.run(
        "MATCH (:Person {id: $id})-[:KNOWS]-(f) RETURN f.name AS name ORDER BY name", id=person_id
    ).data()
    return rows
