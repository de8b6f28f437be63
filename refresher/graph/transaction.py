"""The ``tx`` of a loader: a read transaction that begins with its first query.

::

    the driver's own         BEGIN ⇄   RUN, PULL ⇄   RUN, PULL ⇄   COMMIT ⇄
    this one                           BEGIN, RUN, PULL ⇄   RUN, PULL ⇄   COMMIT ⇄        nothing at all without a query
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from types import TracebackType
from typing import Any, LiteralString, Self

import neo4j

from api_client.protocol.clock import monotonic_seconds
from refresher.graph.reads import Reads, following_entries, plan_of


class ReadTransaction:
    """A transaction in a session of its own; a context manager that commits, and closes the session.

    Has what the driver's managed transaction has: `run`. An error of its own that a loader catches is not lost: it is
    raised again on exit, by the driver where the transaction had begun.

    Args:
        open_session: called at the first query, since a session costs as much as all else of a short load. It has to
            be one for reading.
        timeout_seconds: after which the server ends the transaction.
        has_bookmarks: whether the session has some. Then BEGIN, which waits for them, is a round trip of its own, so
            that its failure can be distinguished from one of a query.
    """

    def __init__(
        self, open_session: Callable[[], neo4j.Session], timeout_seconds: float, *, has_bookmarks: bool = False
    ) -> None:
        self._open_session, self._timeout_seconds = open_session, timeout_seconds
        self._has_bookmarks, self._begin_seconds = has_bookmarks, 0.0
        self._session: neo4j.Session | None = None
        self._begun: neo4j.Transaction | None = None
        self._refused: Exception | None = None
        self._results: list[neo4j.Result] = []
        self._reads: Reads | None = None
        self._explaining: neo4j.Session | None = None

    def run(self, query: LiteralString, parameters: dict[str, Any] | None = None, **more: Any) -> neo4j.Result:
        """Run a query, as `neo4j.ManagedTransaction.run`."""
        result = self._begin().run(query, parameters, **more)
        self._results.append(result)
        if self._reads is not None:
            self._reads.note(query, {**(parameters or {}), **more}, result, self._explain)
        return result

    @contextmanager
    def following(self, reads: Reads | None) -> Iterator[None]:
        """Tell ``reads`` of each query that is run in the block, and of each entry that is read there."""
        self._reads = reads
        try:
            with following_entries(reads):
                yield
        finally:
            self._reads = None

    @property
    def has_written(self) -> bool:
        """True once a query of it has changed the graph. Neo4j refuses that; others that speak Bolt may not.

        What is left of the results is discarded, as the end of the transaction would.
        """
        return any(result.consume().counters.contains_updates for result in self._results)

    @property
    def waits_for_bookmarks(self) -> bool:
        """True while a BEGIN with bookmarks has not succeeded, or where it has used up half of the time limit.

        Neo4j 5.26 waits there for 30 s, whatever the transaction's limit is, and then says that it has begun.
        """
        is_begun = self._begun is not None and self._begin_seconds < self._timeout_seconds / 2
        return self._has_bookmarks and self._session is not None and not is_begun

    def cut(self) -> None:
        """Close the connection under it, from any thread: a caller that waits for a reply gets an error."""
        for session in (self._session, self._explaining):
            connection = getattr(session, "_connection", None)  # the driver has no public way
            if connection is not None:
                with suppress(Exception):
                    connection.kill()

    def _explain(self, cypher: str, parameters: Mapping[str, Any]) -> Mapping[str, Any] | None:
        # In a session of its own: what the graph refuses here does not end the transaction.
        with self._open_session() as self._explaining:
            return plan_of(self._explaining, cypher, parameters, timeout_seconds=self._timeout_seconds)

    def _begin(self) -> neo4j.Transaction:
        if self._refused is not None:
            raise self._refused
        if self._begun is None:
            try:
                self._session = session = self._open_session()
                # As the driver's own execute_query does: without it BEGIN would be a round trip of its own. It is false
                # until it is entered.
                pipelined = None if self._has_bookmarks else getattr(session, "_pipelined_begin", None)
                began = monotonic_seconds()
                with nullcontext() if pipelined is None else pipelined:
                    self._begun = session.begin_transaction(timeout=self._timeout_seconds)
                self._begin_seconds = monotonic_seconds() - began
            except Exception as error:
                self._refused = error
                raise
        return self._begun

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._session or nullcontext():
            if self._begun is not None:
                self._begun.__exit__(kind, error, trace)
            elif kind is None and self._refused is not None:
                raise self._refused
