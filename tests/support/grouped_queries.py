"""A query over several nodes, each of them a tag: one write touches several entries, and entries have several tags."""

from __future__ import annotations

import random
import time
from typing import Any

from refresher import query

GROUPED = "grouped"
NODES, NODES_OF_A_GROUP = 40, 3
MAX_LOAD_SECONDS = 0.05


def name_of(number: int) -> str:
    """Return the id of a node, which is also the tag of the entries that depend on it."""
    return f"n{number % NODES}"


def names_of(group: int) -> list[str]:
    """Return the nodes of a group; each belongs to as many groups."""
    return [name_of(group + place) for place in range(NODES_OF_A_GROUP)]


@query(GROUPED, ttl="1h", slots=64, grace="1h", tags=lambda value, group, once=0: names_of(group))
def grouped(tx: Any, group: int, once: int = 0) -> dict[str, int]:
    """Read the versions of a group's nodes, and take some more time, in which others may write them.

    Another ``once`` makes a key that no index has yet.
    """
    rows = tx.run(
        "MATCH (watched:RefresherWatch) WHERE watched.id IN $names RETURN watched.id AS id, watched.version AS version",
        names=names_of(group),
    )
    versions = {row["id"]: row["version"] for row in rows}
    time.sleep(random.uniform(0, MAX_LOAD_SECONDS))  # noqa: S311 - a duration
    return versions
