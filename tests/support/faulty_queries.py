"""A query that reads the graph, and whose loads a test makes fail, hang or return too much, for all keys at once."""

from __future__ import annotations

from typing import Any, Final

from refresher import query
from tests.support.scripted_queries import control_redis

MODE: Final = "mode"
GATE: Final = "gate"
HANG_SECONDS: Final = 60


@query("people", ttl="500ms", slots=64, grace="10m")
def people(tx: Any, key: str) -> object:
    """Load a row from the graph, unless the test has set a fault."""
    with control_redis() as control:
        mode = control.get(MODE)
        if mode == "fails":
            raise ValueError("it always fails")
        if mode == "too large":
            return "x" * 10_000_000
        if mode == "hangs":
            control.blpop([GATE], timeout=HANG_SECONDS)
    return tx.run("RETURN $key AS key", key=key).data()
