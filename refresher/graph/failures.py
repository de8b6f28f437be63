"""Classification of a load's exceptions: errors of the driver, of the query's author, and of time limits."""

from __future__ import annotations

import ssl
from typing import Final

from celery.exceptions import SoftTimeLimitExceeded

from api_client.errors import CacheError, CacheUnavailable, RefreshFailed, TriggerFailed, WaitTimeout
from api_client.protocol.lease import BookmarkFault
from refresher.errors import LoadFailed, TransientFailure, text_of
from refresher.flow.nesting import CYCLE, TOO_DEEP
from refresher.graph.driver_types import errors as driver_errors

# A graph that has just begun to refuse may have a passing reason; one that goes on refusing has not.
_FEW_ATTEMPTS: Final = 2
_UNAVAILABLE: Final = (
    driver_errors.ServiceUnavailable,  # includes IncompleteCommit, which is harmless to a read
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
_WRITES: Final = "Neo.ClientError.Statement.AccessMode"
_LOCKED_OUT: Final = "Neo.ClientError.Security.AuthenticationRateLimit"
_NO_DATABASE: Final = "Neo.ClientError.Database.DatabaseNotFound"
_BOOKMARKS_REFUSED: Final = frozenset(
    {"Neo.ClientError.Transaction.InvalidBookmark", "Neo.ClientError.Transaction.InvalidBookmarkMixture"}
)
_BOOKMARK_TIMEOUT: Final = "Neo.TransientError.Transaction.BookmarkTimeout"
_UNKNOWN_ERROR: Final = "Neo.DatabaseError.General.UnknownError"
_WRONG_QUERIES: Final = frozenset((CYCLE, TOO_DEEP))
_CACHE_KINDS: Final[dict[str, type[CacheError]]] = {
    "wait_timeout": WaitTimeout,
    "cache_unavailable": CacheUnavailable,
    "trigger_failed": TriggerFailed,
}
_BOOKMARK_KINDS: Final = {BookmarkFault.REFUSED: "bookmark", BookmarkFault.NOT_REACHED: "bookmark_timeout"}


def classify_error(error: BaseException, *, waits_for_bookmarks: bool = False) -> LoadFailed:
    """Classify an error of the driver or of a query author's code; return a LoadFailed unchanged.

    With ``waits_for_bookmarks`` the error is the reply to a BEGIN with bookmarks. A timeout is then due to them, and so
    is an unknown error, with which Neo4j answers some texts that are not bookmarks.

    The text is the error's own and may contain query text and values of params, so it is for the dead letter, not for a
    log.
    """
    if isinstance(error, LoadFailed):
        return error
    message = f"{text_of(error)}{_certificate_fault(error)}"
    if isinstance(error, CacheError):
        return _cache_failure(error, message)
    if (fault := _bookmark_fault(error, waits=waits_for_bookmarks)) is not BookmarkFault.NONE:
        return bookmark_failure(message, fault)
    if isinstance(error, driver_errors.Neo4jError):
        return _server_failure(error, message)
    if isinstance(error, driver_errors.DriverError | driver_errors.UnsupportedServerProduct):
        return _driver_failure(error, message)
    if isinstance(error, TransientFailure):
        return LoadFailed("transient", message, is_transient=True)
    if isinstance(error, SoftTimeLimitExceeded):
        return LoadFailed("timeout", "the soft time limit", is_transient=True, max_attempts=_FEW_ATTEMPTS)
    if isinstance(error, OSError):
        return LoadFailed("network", message, is_transient=True)
    return _loader_failure(error, message)


def _cache_failure(error: CacheError, message: str) -> LoadFailed:
    """Classify an error of the cache, from a loader's read of another query."""
    if isinstance(error, RefreshFailed):
        if error.kind in _WRONG_QUERIES:
            return LoadFailed(error.kind, message, is_transient=False, why=error.hint)
        # The other key is cooling, for longer than a retry waits.
        return LoadFailed("refresh_failed", message, is_transient=False)
    for kind, errors in _CACHE_KINDS.items():
        if isinstance(error, errors):
            return LoadFailed(kind, message, is_transient=True)
    return _loader_failure(error, message)  # the call itself, or its type, is wrong


def bookmark_failure(why: object, fault: BookmarkFault = BookmarkFault.NOT_REACHED) -> LoadFailed:
    """Return a failure due to bookmarks, which is not retried in this run, since a claim without them is better."""
    return LoadFailed(_BOOKMARK_KINDS[fault], str(why), is_transient=False, bookmarks=fault)


def write_failure() -> LoadFailed:
    """Return the failure of a loader that writes, which it may not, as loads are repeated and may go to a follower."""
    message = "the loader writes to the graph, and a load only reads: write in a transaction of the application"
    return LoadFailed("writes", message, is_transient=False)


def _server_failure(error: driver_errors.Neo4jError, message: str) -> LoadFailed:
    code = error.code or ""
    if code == _WRITES:
        return write_failure()
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
    is_syntax = isinstance(error, driver_errors.CypherSyntaxError)
    return LoadFailed("syntax" if is_syntax else "rejected_by_graph", message, is_transient=False)


def _driver_failure(error: Exception, message: str) -> LoadFailed:
    if isinstance(error, _UNAVAILABLE):
        return LoadFailed("graph_unavailable", message, is_transient=True)
    if isinstance(error, driver_errors.ConfigurationError | driver_errors.UnsupportedServerProduct):
        return LoadFailed("configuration", message, is_transient=False)
    # ResultError, SessionError, TransactionError … are mistakes in the loader. A late connection is not.
    late = isinstance(error, driver_errors.ConnectionAcquisitionTimeoutError)
    return LoadFailed("graph_unavailable" if late else "loader_error", message, is_transient=late)


def _loader_failure(error: BaseException, message: str) -> LoadFailed:
    if type(error) is SystemExit:
        return LoadFailed("loader_error", "the loader called sys.exit", is_transient=False)
    if not isinstance(error, Exception):
        # KeyboardInterrupt, Celery's WorkerShutdown, an extension's panic, which are meant to end a process.
        return LoadFailed("loader_error", message, is_transient=True, max_attempts=_FEW_ATTEMPTS)
    # A loader's mistake, or a value that it refuses, will still be there at the next attempt.
    return LoadFailed("loader_error", message, is_transient=not isinstance(error, _MISTAKES))


def _bookmark_fault(error: BaseException, *, waits: bool) -> BookmarkFault:
    code = (error.code or "") if isinstance(error, driver_errors.Neo4jError) else ""
    if code in _BOOKMARKS_REFUSED or (waits and code == _UNKNOWN_ERROR):
        return BookmarkFault.REFUSED
    if code == _BOOKMARK_TIMEOUT or (waits and (code in _TIMED_OUT or isinstance(error, SoftTimeLimitExceeded))):
        return BookmarkFault.NOT_REACHED
    return BookmarkFault.NONE


def _certificate_fault(error: BaseException | None) -> str:
    """Return the fault of the server's certificate, which the driver hides as a cause of a cause, or ""."""
    for _ in range(10):
        if error is None:
            break
        if isinstance(error, ssl.SSLCertVerificationError):
            return f" [the certificate: {error.verify_message}]"
        error = error.__cause__ or error.__context__
    return ""
