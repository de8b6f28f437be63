"""Queries that are built on other queries."""

from __future__ import annotations

from typing import Any

from api_client import default_client, get_cached
from refresher import query
from tests.support.scripted_queries import *  # noqa: F403 - they are registered


@query("tree", ttl="1h", grace="1h")
def tree(tx: Any, key: str) -> list[Any]:
    """Read three leaves, one after the other, and three together."""
    leaves = [get_cached("long_lived", {"key": f"{key}-{n}"}) for n in range(3)]
    return leaves + [
        one.value for one in default_client().get_many([("long_lived", {"key": f"{key}-{n}"}) for n in range(3, 6)])
    ]


@query("forest", ttl="1h", grace="1h")
def forest(tx: Any, key: str) -> list[Any]:
    """Read a tree, within the graph's transaction."""
    return [tx.run("RETURN 1 AS n").single()["n"], get_cached("tree", {"key": key})]


@query("egg", ttl="1h", grace="1h")
def egg(tx: Any) -> Any:
    """Read what reads this."""
    return get_cached("hen")


@query("hen", ttl="1h", grace="1h")
def hen(tx: Any) -> Any:
    """Read what reads this."""
    return get_cached("egg")
