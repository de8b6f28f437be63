"""Types of the Neo4j driver or, if it is not installed, types that no value and no error has.

So `refresher.testing` works for an application without a driver, whose tests define what a query loads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = [
    "Date", "DateTime", "Duration", "EagerResult", "Node", "Path", "Point", "Record", "Relationship", "Result", "Time",
    "Vector", "errors",
]  # fmt: skip

try:
    from neo4j import EagerResult, Record, Result
    from neo4j import exceptions as errors
    from neo4j.graph import Node, Path, Relationship
    from neo4j.spatial import Point
    from neo4j.time import Date, DateTime, Duration, Time
    from neo4j.vector import Vector
except ModuleNotFoundError as _missing:
    if _missing.name != "neo4j":
        raise
    if not TYPE_CHECKING:

        class _Absent(Exception):
            """A type that nothing has."""

        class _NoErrors:
            def __getattr__(self, name: str) -> Any:
                return _Absent

        EagerResult = Record = Result = Node = Path = Relationship = Point = Vector = _Absent
        Date = DateTime = Duration = Time = _Absent
        errors = _NoErrors()
