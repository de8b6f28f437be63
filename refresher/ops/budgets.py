"""Loads in progress under the budgets, as Redis counts them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import redis

from api_client.protocol.keys import budget_keys
from api_client.transport.redis_py import node_of

ALL: Final = "*"
"""Stands for all queries, that is the namespace's budget."""


def budgeted_query(namespace: str, name: str) -> str | None:
    """Return the query whose shares a key holds, or `ALL`; None for any other key."""
    shares, _ = budget_keys(namespace)
    if name == shares:
        return ALL
    return name.removeprefix(f"{shares}:") if name.startswith(f"{shares}:") else None


def loads_in_progress(client: redis.Redis, namespace: str, queries: Iterable[str]) -> dict[str, int]:
    """Return the number of loads that hold a share now, by query or `ALL`.

    Raises:
        redis.exceptions.RedisError: Redis can't be used, or refuses.
    """
    names = {query: budget_keys(namespace, None if query == ALL else query)[0] for query in queries}
    if not names:
        return {}
    node = node_of(client, budget_keys(namespace)[0])
    seconds, microseconds = node.time()
    now_us = int(seconds) * 1_000_000 + int(microseconds)
    # Shares that have ended stay in the set until somebody takes one.
    return {query: len(node.zrangebyscore(name, f"({now_us}", "+inf")) for query, name in names.items()}
