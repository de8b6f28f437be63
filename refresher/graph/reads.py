"""The follower of what a load reads: from the graph, as `ReadTransaction` tells it, and of other entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Protocol, TypeAlias

import neo4j

from api_client.protocol.entry import Header
from api_client.protocol.keys import CacheKey
from api_client.read.in_place import followers

Explain: TypeAlias = Callable[[str, Mapping[str, Any]], Mapping[str, Any] | None]
"""Returns the plan of a text with its parameters."""


def plan_of(
    session: neo4j.Session, cypher: str, parameters: Mapping[str, Any], *, timeout_seconds: float = 10.0
) -> Mapping[str, Any] | None:
    """Return the plan that the graph has for a text; nothing is run.

    Raises:
        Neo4jError, DriverError: the text is refused, or the graph could not be asked.
    """
    query = neo4j.Query(f"EXPLAIN {cypher}", timeout=timeout_seconds)
    return session.run(query, dict(parameters)).consume().plan


class Reads(Protocol):
    """The reads of one load."""

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of what was read."""

    @property
    def is_outdated(self) -> bool:
        """True once an entry was read that is invalidated."""

    def note(self, cypher: str, parameters: Mapping[str, Any], result: neo4j.Result, explain: Explain) -> None:
        """Note a query that has just been run; ``result`` is not consumed yet."""

    def note_entry(self, key: CacheKey, header: Header) -> None:
        """Note an entry that a read of the loader has returned."""


class FollowsReads(Protocol):
    """A maker of `Reads`."""

    def reads(self, query: str) -> Reads:
        """Return what follows the reads of one load of a query."""


_reads: Final[ContextVar[tuple[Reads, ...]]] = ContextVar("refresher_reads")
_in_progress: Final[list[Reads]] = []
"""Those of all threads: what a loader's own threads read counts for each, since it is not known for which."""


@contextmanager
def following_entries(reads: Reads | None) -> Iterator[None]:
    """Tell ``reads`` of each entry that is read in the block; None: nobody, also within a block of an outer load."""
    if reads is not None and _note not in followers:
        followers.append(_note)  # from the first such load on: other readers pay nothing
    own = () if reads is None else (reads,)
    reset = _reads.set(own)
    _in_progress.extend(own)
    try:
        yield
    finally:
        _reads.reset(reset)
        for one in own:
            _in_progress.remove(one)


def _note(key: CacheKey, header: Header) -> None:
    for reads in _reads.get(tuple(_in_progress)):
        reads.note_entry(key, header)
