"""Sensitive queries whose loads end in each way that could expose a param."""

from __future__ import annotations

from typing import Any

from refresher import TransientFailure, query


@query("kept_private", ttl="1h", slots=64, grace="1h", sensitive=True, degree="RETURN 1 AS degree")
def kept_private(tx: Any, person: str) -> dict[str, Any]:
    """Read the graph with the param."""
    return {"rows": tx.run("RETURN $person AS person", person=person).data()}


@query("private_and_wrong", ttl="1h", slots=64, grace="1h", sensitive=True)
def private_and_wrong(tx: Any, person: str) -> None:
    """Raise an error that quotes the param."""
    raise ValueError(f"there is no {person}")


@query("private_and_refused", ttl="1h", slots=64, grace="1h", sensitive=True)
def private_and_refused(tx: Any, person: str) -> None:
    """Cause an error of the graph that quotes the param."""
    tx.run(f"MATCH this is no Cypher {person}").consume()


@query("private_and_late", ttl="1h", slots=64, grace="1h", sensitive=True)
def private_and_late(tx: Any, person: str) -> None:
    """Fail in a way that is retried, finally through the broker."""
    raise TransientFailure(f"{person} is not there yet")
