"""The graph: the one edge to the neo4j driver. How it is configured, how a load runs, and what its errors mean."""

from __future__ import annotations

import math
import os
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import neo4j
from celery.exceptions import SoftTimeLimitExceeded
from neo4j import exceptions as driver_errors

from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.lease import BookmarkFault
from refresher.errors import LoadFailed, TransientFailure, text_of
from refresher.flow.events import NO_SPANS, WorkerSpans
from refresher.flow.ports import RunsQueries
from refresher.graph.deadlines import Deadlines
from refresher.graph.driver import open_driver
from refresher.graph.pool_process import pool_has_limits, process_is_ending
from refresher.graph.transaction import ReadTransaction
from refresher.graph.values import rows_of
from refresher.queries import Loaded, Query
from refresher.settings import HARD_LIMIT_MARGIN_SECONDS, SOFT_LIMIT_MARGIN_SECONDS, WorkerSettings

FETCH_SIZE: Final = 1_000
REFUSED_SECONDS: Final = 5.0
VERIFY_SECONDS: Final = 10.0
_MEANT_FOR_A_RETRY: Final = (
    driver_errors.ServiceUnavailable,  # includes IncompleteCommit: harmless, for we only read
    driver_errors.SessionExpired,
)
_MISTAKES: Final = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, TypeError, ValueError)
_TIMED_OUT: Final = frozenset(
    {
        "Neo.ClientError.Transaction.TransactionTimedOut",
        "Neo.ClientError.Transaction.TransactionTimedOutClientConfiguration",
        "Neo.TransientError.Transaction.TransactionTimedOut",
    }
)
_TERMINATED: Final = frozenset(
    {
        "Neo.ClientError.Transaction.Terminated",
        "Neo.ClientError.Transaction.LockClientStopped",
        "Neo.TransientError.Transaction.Terminated",
        "Neo.TransientError.Transaction.LockClientStopped",
    }
)
_LOCKED_OUT: Final = "Neo.ClientError.Security.AuthenticationRateLimit"
_BOOKMARKS_REFUSED: Final = frozenset(
    {"Neo.ClientError.Transaction.InvalidBookmark", "Neo.ClientError.Transaction.InvalidBookmarkMixture"}
)
_BOOKMARK_TIMEOUT: Final = "Neo.TransientError.Transaction.BookmarkTimeout"
_UNKNOWN_ERROR: Final = "Neo.DatabaseError.General.UnknownError"
_KINDS_OF_BOOKMARKS: Final = {
    BookmarkFault.REFUSED: "bookmark",
    BookmarkFault.NOT_REACHED: "bookmark_timeout",
}
_NO_DATABASE: Final = "Neo.ClientError.Database.DatabaseNotFound"
# A graph that has just begun to refuse may have a reason that passes; one that goes on refusing has not.
_FEW_ATTEMPTS: Final = 2


class Graph:
    """One driver, made at the first load and never shared with a forked child. Thread-safe.

    Args:
        spans: told of each query that a load asks.

    Raises:
        ConfigurationError: the driver refuses NEO4J_URI.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        *,
        spans: WorkerSpans = NO_SPANS,
        monotonic: Callable[[], float] = monotonic_seconds,
    ) -> None:
        self._settings, self._spans, self._monotonic = settings, spans, monotonic
        self._pid = os.getpid()
        self._deadlines = Deadlines()
        self._refused_until = -math.inf
        self._driver = open_driver(settings, settings.neo4j_user, settings.neo4j_password)

    def load(self, query: Query, params: Mapping[str, Any], bookmarks: Sequence[str], timeout_seconds: float) -> Loaded:
        """Run a query's loader, and its degree, in one read transaction.

        Args:
            query: what to run.
            params: passed to the loader as keywords, and to the degree's Cypher.
            bookmarks: the transaction reads after them.
            timeout_seconds: after which the server ends the transaction.

        Raises:
            LoadFailed: of some kind, transient or not.
        """
        if os.getpid() != self._pid:
            raise LoadFailed("driver_shared", "the driver was made before a fork", is_transient=False)
        if self._monotonic() < self._refused_until:
            raise LoadFailed(
                "auth", "the graph has just refused our password; it was not asked again", is_transient=False
            )
        tx = ReadTransaction(lambda: self._session(bookmarks), timeout_seconds, has_bookmarks=bool(bookmarks))
        if pool_has_limits():
            return self._load(query, params, tx)
        # The server ends the transaction sooner, if it answers at all.
        soft_seconds = timeout_seconds + SOFT_LIMIT_MARGIN_SECONDS
        hard_seconds = timeout_seconds + HARD_LIMIT_MARGIN_SECONDS
        try:
            return self._deadlines.run(lambda: self._load(query, params, tx), soft_seconds, hard_seconds, tx.cut)
        except LoadFailed as failure:
            if failure.kind == "timeout" and tx.waits_for_bookmarks:
                raise _due_to_bookmarks(failure) from failure
            raise

    @property
    def hangs(self) -> bool:
        """Whether a load goes on beyond its hard time limit, in a pool that ends none: the process has to end."""
        return self._deadlines.hangs

    def _session(self, bookmarks: Sequence[str]) -> neo4j.Session:
        return self._driver.session(
            database=self._settings.neo4j_database or None,
            default_access_mode=neo4j.READ_ACCESS,
            bookmarks=neo4j.Bookmarks.from_raw_values(bookmarks),
            fetch_size=FETCH_SIZE,
        )

    def _load(self, query: Query, params: Mapping[str, Any], begun: ReadTransaction) -> Loaded:
        try:
            with begun, _abort_on_rejected_result(begun):
                tx = self._spans.transaction(begun, query, self._settings)
                value = call_loader(query, tx, params, self._settings.max_value_bytes)
                return Loaded(value, _degree(tx, query, params))
        except LoadFailed:
            raise
        except BaseException as error:
            if process_is_ending():
                raise
            failure = classify_error(error, waits_for_bookmarks=begun.waits_for_bookmarks)
            if failure.kind == "auth":
                # Each attempt is one of few that the graph allows before it locks the user out.
                self._refused_until = self._monotonic() + REFUSED_SECONDS
            try:
                raise failure from error
            finally:
                del failure  # else its traceback would keep this frame, and with it all that the loader had

    def verify(self) -> None:
        """Query the configured database as the configured user, as a load does.

        Raises:
            LoadFailed: it did not answer within `VERIFY_SECONDS`; the message says why.
        """
        tx = ReadTransaction(lambda: self._session(()), VERIFY_SECONDS)
        # The driver waits without bound for a server that has accepted the connection and then falls silent.
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
        self._deadlines.close()
        self._driver.close()


def call_loader(query: Query, tx: Any, params: Mapping[str, Any], max_bytes: int) -> Any:
    """Call a query's loader and return its value; the rows that it yields, as a list.

    Raises:
        LoadFailed: it returned a Result, or yields more than a payload may hold.
    """
    value = query.loader(tx, **params)
    if isinstance(value, neo4j.Result):
        # It would be empty once the transaction has ended.
        raise LoadFailed(
            "not_encodable", f"the loader of {query.name!r} returned a Result: consume it, and return its data",
            is_transient=False,
        )  # fmt: skip
    return rows_of(value, query=query.name, max_bytes=max_bytes) if isinstance(value, Iterator) else value


@contextmanager
def _abort_on_rejected_result(tx: ReadTransaction) -> Iterator[None]:
    try:
        yield
    except LoadFailed:
        # Else the driver would have the server go through all rows that nobody wants any more.
        tx.cut()
        raise


def _degree(tx: RunsQueries, query: Query, params: Mapping[str, Any]) -> int:
    if query.degree_cypher is None:
        return 0
    # Registered by the worker's own code, never taken from a message.
    record = tx.run(query.degree_cypher, dict(params)).single()
    degree = record.value() if record is not None else None
    return max(0, int(degree)) if isinstance(degree, int | float) else 0


def classify_error(error: BaseException, *, waits_for_bookmarks: bool = False) -> LoadFailed:
    """Return what an error of the driver, or of code of a query's author, means; one that is a LoadFailed as it is.

    With ``waits_for_bookmarks`` it is the answer to a BEGIN that was given bookmarks: a timeout there is theirs, and so
    is an unknown error, which Neo4j has for some texts that are no bookmarks.

    Its text is the error's own and may hold query text and values of params: it is for the dead letter, not for a log.
    """
    if isinstance(error, LoadFailed):
        return error
    message = f"{text_of(error)}{_of_certificate(error)}"
    if (fault := _fault_of_bookmarks(error, waits=waits_for_bookmarks)) is not BookmarkFault.NONE:
        return _due_to_bookmarks(message, fault)
    if isinstance(error, driver_errors.Neo4jError):
        return _of_server(error, message)
    if isinstance(error, driver_errors.DriverError | driver_errors.UnsupportedServerProduct):
        return _of_driver(error, message)
    if isinstance(error, TransientFailure):
        return LoadFailed("transient", message, is_transient=True)
    if isinstance(error, SoftTimeLimitExceeded):
        return LoadFailed("timeout", "the soft time limit", is_transient=True, max_attempts=_FEW_ATTEMPTS)
    if isinstance(error, OSError):
        return LoadFailed("network", message, is_transient=True)
    return _of_loader(error, message)


def _of_driver(error: Exception, message: str) -> LoadFailed:
    if isinstance(error, _MEANT_FOR_A_RETRY):
        return LoadFailed("graph_unavailable", message, is_transient=True)
    if isinstance(error, driver_errors.ConfigurationError | driver_errors.UnsupportedServerProduct):
        return LoadFailed("configuration", message, is_transient=False)
    # ResultError, SessionError, TransactionError …: a mistake in the loader. A connection that came late is not.
    late = isinstance(error, driver_errors.ConnectionAcquisitionTimeoutError)
    return LoadFailed("graph_unavailable" if late else "loader_error", message, is_transient=late)


def _of_loader(error: BaseException, message: str) -> LoadFailed:
    if type(error) is SystemExit:
        return LoadFailed("loader_error", "the loader called sys.exit", is_transient=False)
    if not isinstance(error, Exception):
        # KeyboardInterrupt, Celery's WorkerShutdown, a panic of an extension: they are meant to end a process.
        return LoadFailed("loader_error", message, is_transient=True, max_attempts=_FEW_ATTEMPTS)
    # A mistake in a loader, or values that it refuses, will be there at the next attempt too.
    return LoadFailed("loader_error", message, is_transient=not isinstance(error, _MISTAKES))


def _due_to_bookmarks(why: object, fault: BookmarkFault = BookmarkFault.NOT_REACHED) -> LoadFailed:
    # Not tried again in this run: a claim without them is the better attempt.
    return LoadFailed(_KINDS_OF_BOOKMARKS[fault], str(why), is_transient=False, bookmarks=fault)


def _fault_of_bookmarks(error: BaseException, *, waits: bool) -> BookmarkFault:
    code = (error.code or "") if isinstance(error, driver_errors.Neo4jError) else ""
    if code in _BOOKMARKS_REFUSED or (waits and code == _UNKNOWN_ERROR):
        return BookmarkFault.REFUSED
    if code == _BOOKMARK_TIMEOUT or (waits and (code in _TIMED_OUT or isinstance(error, SoftTimeLimitExceeded))):
        return BookmarkFault.NOT_REACHED
    return BookmarkFault.NONE


def _of_certificate(error: BaseException | None) -> str:
    """Say what is wrong with the server's certificate. The driver keeps it to itself, as the cause of a cause."""
    for _ in range(10):
        if error is None:
            break
        if isinstance(error, ssl.SSLCertVerificationError):
            return f" [the certificate: {error.verify_message}]"
        error = error.__cause__ or error.__context__
    return ""


def _of_server(error: driver_errors.Neo4jError, message: str) -> LoadFailed:
    code = error.code or ""
    if code in _TIMED_OUT:
        return LoadFailed("timeout", message, is_transient=True, max_attempts=_FEW_ATTEMPTS)
    if code in _TERMINATED:
        return LoadFailed("terminated", message, is_transient=True, max_attempts=_FEW_ATTEMPTS)
    if isinstance(error, driver_errors.AuthError) or code == _LOCKED_OUT:
        return LoadFailed("auth", message, is_transient=False)
    if code == _NO_DATABASE:
        return LoadFailed("configuration", message, is_transient=False)
    if isinstance(error, driver_errors.TransientError) or error.is_retryable():
        return LoadFailed("deadlock" if "Deadlock" in code else "transient", message, is_transient=True)
    if isinstance(error, driver_errors.DatabaseError):
        return LoadFailed("database_error", message, is_transient=True, max_attempts=_FEW_ATTEMPTS)
    if isinstance(error, driver_errors.CypherSyntaxError):
        return LoadFailed("syntax", message, is_transient=False)
    return LoadFailed("rejected_by_graph", message, is_transient=False)
