"""Followers of a load's reads, from the graph (reported by `ReadTransaction`) and of other entries."""

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
"""Returns the plan of a Cypher text with its parameters."""


def plan_of(
    session: neo4j.Session, cypher: str, parameters: Mapping[str, Any], *, timeout_seconds: float = 10.0
) -> Mapping[str, Any] | None:
    """Return the graph's plan for a Cypher text, without running it.

    Raises:
        Neo4jError, DriverError: the text was refused, or the graph could not be queried.
    """
    query = neo4j.Query(f"EXPLAIN {cypher}", timeout=timeout_seconds)
    return session.run(query, dict(parameters)).consume().plan


class Reads(Protocol):
    """The reads of one load."""

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of all that was read."""

    @property
    def is_outdated(self) -> bool:
        """True once an invalidated entry was read."""

    def note(self, cypher: str, parameters: Mapping[str, Any], result: neo4j.Result, explain: Explain) -> None:
        """Note a query that has just been run, whose ``result`` is not consumed yet."""

    def note_entry(self, key: CacheKey, header: Header) -> None:
        """Note an entry that the loader has read."""


class FollowsReads(Protocol):
    """A maker of `Reads`."""

    def reads(self, query: str) -> Reads:
        """Return the follower for one load of a query."""


_reads: Final[ContextVar[tuple[Reads, ...]]] = ContextVar("refresher_reads")
_in_progress: Final[list[Reads]] = []
"""Followers of all threads; each counts the reads of loaders' own threads, as it is not known whose they are."""


@contextmanager
def following_entries(reads: Reads | None) -> Iterator[None]:
    """Report each entry read in the block to ``reads``; with None to nobody, even within an outer load's block."""
    if reads is not None and _note not in followers:
        followers.append(_note)  # only from the first such load on, so that other readers pay nothing
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
