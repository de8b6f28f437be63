"""Query of a person's version, tagged with that person, and the watch declaration. Imported by the worker."""

from __future__ import annotations

import os
from typing import Any, Final

from benchmarks.apparatus.control import control
from refresher import query
from refresher.feed import node_tags, watch

QUERY: Final = "version"
TTL: Final = "BENCH_TTL_SECONDS"
LOADS: Final = "version-loads"
"""Key of the number of loads in the control database."""
CHANGE: Final = "UNWIND $ids AS id MATCH (p:Person {id: id}) SET p.version = p.version + 1"

watch("Person", key="id")


def tag_of(number: int) -> str:
    """Return the tag of a person."""
    return node_tags("Person", number)[0]


@query(
    QUERY, ttl=float(os.environ.get(TTL, "3600")), grace="1h", tags=lambda _, person_id: node_tags("Person", person_id)
)
def version(tx: Any, person_id: int) -> int:
    """Read a person's version, and count the load."""
    control().incr(LOADS)
    return int(tx.run("MATCH (p:Person {id: $id}) RETURN p.version AS version", id=person_id).single()["version"])
