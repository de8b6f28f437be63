"""The ``tx`` of a loader: a read transaction that begins with its first query.

::

    the driver's own         BEGIN ⇄   RUN, PULL ⇄   RUN, PULL ⇄   COMMIT ⇄
    this one                           BEGIN, RUN, PULL ⇄   RUN, PULL ⇄   COMMIT ⇄        nothing without a query
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
    """A transaction in its own session; a context manager that commits and closes the session.

    It has the method of the driver's managed transaction, `run`. A transaction's error that a loader catches is not
    lost: it is raised again on exit, by the driver if the transaction had begun.

    Args:
        open_session: opens a read session; called at the first query, since a session costs as much as the rest of a
            short load.
        timeout_seconds: the time after which the server ends the transaction.
        has_bookmarks: True if the session has bookmarks. Then BEGIN, which waits for them, is a round trip of its own,
            so that its failure differs from a query's.
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
        """Run a query, as `neo4j.ManagedTransaction.run` does."""
        result = self._begin().run(query, parameters, **more)
        self._results.append(result)
        if self._reads is not None:
            self._reads.note(query, {**(parameters or {}), **more}, result, self._explain)
        return result

    @contextmanager
    def following(self, reads: Reads | None) -> Iterator[None]:
        """Report each query run in the block, and each entry read there, to ``reads``."""
        self._reads = reads
        try:
            with following_entries(reads):
                yield
        finally:
            self._reads = None

    @property
    def has_written(self) -> bool:
        """True once one of its queries has changed the graph. Neo4j refuses that; other Bolt servers may not.

        The rest of the results is discarded, as at the end of the transaction.
        """
        return any(result.consume().counters.contains_updates for result in self._results)

    @property
    def waits_for_bookmarks(self) -> bool:
        """True while a BEGIN with bookmarks has not succeeded, or if it has used up half of the time limit.

        Neo4j 5.26 waits there for 30 s, whatever the transaction's limit is, and then replies that it has begun.
        """
        is_begun = self._begun is not None and self._begin_seconds < self._timeout_seconds / 2
        return self._has_bookmarks and self._session is not None and not is_begun

    def cut(self) -> None:
        """Close the transaction's connection, from any thread; a caller that waits for a reply gets an error."""
        for session in (self._session, self._explaining):
            connection = getattr(session, "_connection", None)  # the driver has no public way
            if connection is not None:
                with suppress(Exception):
                    connection.kill()

    def _explain(self, cypher: str, parameters: Mapping[str, Any]) -> Mapping[str, Any] | None:
        # In a session of its own, so that a refusal here does not end the transaction.
        with self._open_session() as self._explaining:
            return plan_of(self._explaining, cypher, parameters, timeout_seconds=self._timeout_seconds)

    def _begin(self) -> neo4j.Transaction:
        if self._refused is not None:
            raise self._refused
        if self._begun is None:
            try:
                self._session = session = self._open_session()
                # As in the driver's own execute_query; without it BEGIN would be a round trip of its own. It is false
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
