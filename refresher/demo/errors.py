"""The demo's own errors, under one base.

::

    DemoError
    ├── EdgeListError   an edge list can't be read (.path, .line_number)
    └── GraphLoadError  the graph could not be loaded into the database

A wrong number given to the generator is a ``ValueError``: the caller's mistake, not the user's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class DemoError(Exception):
    """Base of all errors of the demo. The message is meant for the user, and has the remedy."""


class EdgeListError(DemoError):
    """An edge list can't be read. ``line_number`` counts from 1; None when the file as a whole is at fault."""

    def __init__(self, path: Path, problem: str, line_number: int | None = None) -> None:
        where = str(path) if line_number is None else f"{path}, line {line_number}"
        super().__init__(f"{where}: {problem}")
        self.path: Path = path
        self.line_number: int | None = line_number


class GraphLoadError(DemoError):
    """The graph could not be loaded: the database is not empty, refuses a batch, or counts other numbers."""
