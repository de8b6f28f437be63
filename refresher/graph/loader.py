"""Loads from the graph: a query's loader in one read transaction, within time limits."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import neo4j

from api_client.protocol.clock import monotonic_seconds
from refresher.errors import LoadFailed
from refresher.flow.ports import NO_SPANS, WorkerSpans
from refresher.graph.changes import load_changed
from refresher.graph.driver import open_driver
from refresher.graph.failures import bookmark_failure, classify_error, write_failure
from refresher.graph.reads import FollowsReads
from refresher.graph.thread_limits import ThreadLimits, pool_has_limits, process_is_ending
from refresher.graph.transaction import ReadTransaction
from refresher.queries import AUTO, Loaded, Query
from refresher.results import Previous
from refresher.settings import HARD_LIMIT_MARGIN_SECONDS, SOFT_LIMIT_MARGIN_SECONDS, WorkerSettings

FETCH_SIZE: Final = 1_000
REFUSED_SECONDS: Final = 5.0
VERIFY_SECONDS: Final = 10.0


class _Once(logging.Filter):
    """Passes each text once, since the server repeats its notifications about a query at every load."""

    MOST: Final = 1_000

    def __init__(self) -> None:
        super().__init__()
        self._said: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if text in self._said:
            return False
        if len(self._said) >= self.MOST:
            self._said.clear()
        self._said.add(text)
        return True


_ONCE: Final = _Once()


class Graph:
    """The graph with one driver, made at the first load and never shared with a forked child. Thread-safe.

    Args:
        spans: hooks around each query that a load runs.
        follows: makes tags from a load's reads, for queries with automatic tags.

    Raises:
        ConfigurationError: the driver refuses NEO4J_URI.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        *,
        spans: WorkerSpans = NO_SPANS,
        follows: FollowsReads | None = None,
        monotonic: Callable[[], float] = monotonic_seconds,
    ) -> None:
        self._settings, self._spans, self._monotonic = settings, spans, monotonic
        self._follows = follows
        self._pid = os.getpid()
        self._limits = ThreadLimits()
        self._refused_until = -math.inf
        logging.getLogger("neo4j.notifications").addFilter(_ONCE)
        self._driver = open_driver(settings)

    def load(
        self,
        query: Query,
        calls: Sequence[Mapping[str, Any]],
        previous: Sequence[Previous | None],
        bookmarks: Sequence[str],
        timeout_seconds: float,
    ) -> list[Loaded]:
        """Run a query's loader and degree in one read transaction; return each call's result.

        If ``version_cypher`` returns the same as before, neither is run.

        Args:
            query: the query to run.
            calls: the params of each call, of which there is one if the query has no ``batch``.
            previous: the previous value's data for each call.
            bookmarks: the bookmarks that the transaction reads after.
            timeout_seconds: the time after which the server ends the transaction.

        Raises:
            LoadFailed: the load has failed, for a transient or permanent reason.
        """
        if os.getpid() != self._pid:
            raise LoadFailed("driver_shared", "the driver was made before a fork", is_transient=False)
        if self._monotonic() < self._refused_until:
            raise LoadFailed(
                "auth", "the graph has just rejected the password; not tried again yet", is_transient=False
            )
        tx = ReadTransaction(lambda: self._session(bookmarks), timeout_seconds, has_bookmarks=bool(bookmarks))
        if pool_has_limits():
            return self._load(query, calls, previous, tx)
        # If it answers at all, the server ends the transaction sooner.
        soft_seconds = timeout_seconds + SOFT_LIMIT_MARGIN_SECONDS
        hard_seconds = timeout_seconds + HARD_LIMIT_MARGIN_SECONDS
        try:
            return self._limits.run(lambda: self._load(query, calls, previous, tx), soft_seconds, hard_seconds, tx.cut)
        except LoadFailed as failure:
            if failure.kind == "timeout" and tx.waits_for_bookmarks:
                raise bookmark_failure(failure) from failure
            raise

    @property
    def hangs(self) -> bool:
        """True once a load exceeds its hard time limit in a pool that can't end it, so that the process has to end."""
        return self._limits.hangs

    def _session(self, bookmarks: Sequence[str]) -> neo4j.Session:
        return self._driver.session(
            database=self._settings.neo4j_database or None,
            default_access_mode=neo4j.READ_ACCESS,
            bookmarks=neo4j.Bookmarks.from_raw_values(bookmarks),
            fetch_size=FETCH_SIZE,
        )

    def _load(
        self,
        query: Query,
        calls: Sequence[Mapping[str, Any]],
        previous: Sequence[Previous | None],
        begun: ReadTransaction,
    ) -> list[Loaded]:
        try:
            with begun, _abort_on_rejected_result(begun):
                tx = self._spans.transaction(begun, query, self._settings)
                reads = self._follows.reads(query.name) if self._follows and query.tags == AUTO else None
                loaded = load_changed(
                    query, tx, calls, previous, self._settings.max_value_bytes, reads=reads, following=begun.following
                )
                if begun.has_written:
                    raise write_failure()
                return loaded
        except LoadFailed:
            raise
        except BaseException as error:
            if process_is_ending():
                raise
            failure = classify_error(error, waits_for_bookmarks=begun.waits_for_bookmarks)
            if failure.kind == "auth":
                # The graph allows only a few attempts before it locks the user out.
                self._refused_until = self._monotonic() + REFUSED_SECONDS
            try:
                raise failure from error
            finally:
                del failure  # otherwise its traceback would keep this frame, and all of the loader's data, alive

    def verify(self) -> None:
        """Query the configured database as the configured user, as a load does.

        Raises:
            LoadFailed: it did not answer properly within `VERIFY_SECONDS`; the message says why.
        """
        tx = ReadTransaction(lambda: self._session(()), VERIFY_SECONDS)
        # The driver waits forever for a server that accepts the connection and then falls silent.
        cut = threading.Timer(VERIFY_SECONDS, tx.cut)
        cut.daemon = True
        cut.start()
        try:
            with tx:
                tx.run("RETURN 1").consume()
        except Exception as error:
            raise classify_error(error) from error
        finally:
            cut.cancel()

    def close(self) -> None:
        """End idle threads, and close the driver's connections."""
        self._limits.close()
        self._driver.close()


@contextmanager
def _abort_on_rejected_result(tx: ReadTransaction) -> Iterator[None]:
    try:
        yield
    except LoadFailed:
        # Otherwise the driver would make the server go through all the rows that are no longer needed.
        tx.cut()
        raise
