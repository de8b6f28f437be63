"""The query of ``refresher doctor --watch``, for workers with ``REFRESHER_QUERIES=my_queries,refresher.watch``.

It reads nodes with a label of their own, which the watch creates and removes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from refresher.checker.nodes import READ_NODE, WATCH_LABEL, WATCH_QUERY
from refresher.feed import node_tags, watch
from refresher.queries import query

if TYPE_CHECKING:
    from neo4j import ManagedTransaction


watch(WATCH_LABEL, key="id")


@query(WATCH_QUERY, ttl="3s", grace="1m", tags=lambda _, node: node_tags(WATCH_LABEL, node))
def watched_node(tx: ManagedTransaction, node: str) -> dict[str, int] | None:
    """Return ``{"version"}`` of a watched node, or None if it does not exist."""
    record = tx.run(READ_NODE, node=node).single()
    return None if record is None else {"version": record["version"]}
