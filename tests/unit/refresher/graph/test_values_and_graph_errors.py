"""The adapter to the graph's driver: its types as payloads, and the classification of its errors."""

from __future__ import annotations

import pickle

import neo4j
import pytest
from celery.exceptions import SoftTimeLimitExceeded
from neo4j import exceptions as driver_errors

from api_client.errors import (
    CacheUnavailable,
    ConfigurationError,
    DecodeError,
    InvalidQuery,
    RefreshFailed,
    TriggerFailed,
    UnknownQuery,
    WaitTimeout,
)
from api_client.protocol.lease import BookmarkFault
from refresher.errors import LoadFailed, TransientFailure
from refresher.graph import values
from refresher.graph.failures import classify_error
from refresher.graph.loader import Graph as Origin
from refresher.ops.startup_checks import log_problems
from refresher.settings import WorkerSettings
from tests.support.driver_values import server_error

MIB = 1024 * 1024


def deep() -> object:
    inner: list[object] = []
    for _ in range(10_000):
        inner = [inner]
    return inner


@pytest.mark.parametrize("value", [object(), {"a": object()}, 2**64, 1j, lambda: 1, deep()], ids=type)
def test_a_value_that_can_t_be_encoded_is_a_permanent_failure(value: object) -> None:
    with pytest.raises(LoadFailed) as caught:
        values.encode(value, query="friends_of", max_bytes=MIB)
    assert (caught.value.kind, caught.value.is_transient) == ("not_encodable", False)
    assert "'friends_of'" in str(caught.value)


TRANSIENT, BOUNDED, PERMANENT = (True, None), (True, 2), (False, None)
ERRORS: list[tuple[Exception, str, tuple[bool, int | None]]] = [
    (server_error("TransientError.Transaction.DeadlockDetected"), "deadlock", TRANSIENT),
    (server_error("TransientError.General.DatabaseUnavailable"), "transient", TRANSIENT),
    (server_error("TransientError.General.OutOfMemoryError"), "transient", TRANSIENT),
    (server_error("ClientError.Cluster.NotALeader"), "transient", TRANSIENT),
    (server_error("ClientError.General.ForbiddenOnReadOnlyDatabase"), "transient", TRANSIENT),
    (server_error("ClientError.Security.AuthorizationExpired"), "transient", TRANSIENT),
    (driver_errors.ServiceUnavailable("gone"), "graph_unavailable", TRANSIENT),
    (driver_errors.SessionExpired("gone"), "graph_unavailable", TRANSIENT),
    (driver_errors.IncompleteCommit("cut"), "graph_unavailable", TRANSIENT),
    (driver_errors.ConnectionAcquisitionTimeoutError("full"), "graph_unavailable", TRANSIENT),
    (server_error("ClientError.Transaction.TransactionTimedOut"), "timeout", BOUNDED),
    (server_error("ClientError.Transaction.TransactionTimedOutClientConfiguration"), "timeout", BOUNDED),
    (server_error("ClientError.Transaction.Terminated"), "terminated", BOUNDED),
    (server_error("TransientError.Transaction.Terminated"), "terminated", BOUNDED),
    (server_error("TransientError.Transaction.LockClientStopped"), "terminated", BOUNDED),
    (server_error("DatabaseError.General.UnknownError"), "database_error", BOUNDED),
    (server_error("ClientError.Transaction.InvalidBookmark"), "bookmark", PERMANENT),
    (server_error("ClientError.Transaction.InvalidBookmarkMixture"), "bookmark", PERMANENT),
    (server_error("TransientError.Transaction.BookmarkTimeout"), "bookmark_timeout", PERMANENT),
    (server_error("ClientError.Statement.SyntaxError"), "syntax", PERMANENT),
    (server_error("ClientError.Statement.ParameterMissing"), "rejected_by_graph", PERMANENT),
    (server_error("ClientError.Schema.ConstraintValidationFailed"), "rejected_by_graph", PERMANENT),
    (server_error("ClientError.Statement.ArithmeticError"), "rejected_by_graph", PERMANENT),
    (server_error("ClientError.Procedure.ProcedureNotFound"), "rejected_by_graph", PERMANENT),
    (server_error("ClientError.Database.DatabaseNotFound"), "configuration", PERMANENT),
    (server_error("ClientError.Statement.AccessMode"), "writes", PERMANENT),
    (server_error("ClientError.Security.Unauthorized"), "auth", PERMANENT),
    (server_error("ClientError.Security.AuthenticationRateLimit"), "auth", PERMANENT),
    (server_error("ClientError.Security.Forbidden"), "rejected_by_graph", PERMANENT),
    (driver_errors.ConfigurationError("wrong"), "configuration", PERMANENT),
    (driver_errors.UnsupportedServerProduct("other"), "configuration", PERMANENT),
    (driver_errors.ResultError(None, "consumed"), "loader_error", PERMANENT),
    (driver_errors.SessionError(None, "nested"), "loader_error", PERMANENT),
    (driver_errors.TransactionError(None, "closed"), "loader_error", PERMANENT),
    (driver_errors.BrokenRecordError("broken"), "loader_error", PERMANENT),
    (RefreshFailed("q", "cycle", 0, 0.0, "q → q"), "cycle", PERMANENT),
    (RefreshFailed("q", "too_deep", 0, 0.0, "q → r"), "too_deep", PERMANENT),
    (RefreshFailed("q", "syntax", 1, 0.0), "refresh_failed", PERMANENT),
    (UnknownQuery("q", 1), "refresh_failed", PERMANENT),
    (WaitTimeout("q", 1.0, "queued"), "wait_timeout", TRANSIENT),
    (CacheUnavailable("no Redis"), "cache_unavailable", TRANSIENT),
    (TriggerFailed("no broker"), "trigger_failed", TRANSIENT),
    (DecodeError("not an int"), "loader_error", PERMANENT),
    (InvalidQuery("no name"), "loader_error", PERMANENT),
    (TransientFailure("try later"), "transient", TRANSIENT),
    (SoftTimeLimitExceeded(), "timeout", BOUNDED),
    (ConnectionResetError("reset"), "network", TRANSIENT),
    (TimeoutError("slow"), "network", TRANSIENT),
    (KeyError("name"), "loader_error", PERMANENT),
    (TypeError("arguments"), "loader_error", PERMANENT),
    (ZeroDivisionError("by zero"), "loader_error", PERMANENT),
    (RuntimeError("who knows"), "loader_error", TRANSIENT),
]


@pytest.mark.parametrize(("error", "kind", "verdict"), ERRORS, ids=[f"{type(e).__name__}-{k}" for e, k, _ in ERRORS])
def test_an_error_is_transient_bounded_or_permanent(
    error: Exception, kind: str, verdict: tuple[bool, int | None]
) -> None:
    failed = classify_error(error)
    assert (failed.kind, failed.is_transient, failed.max_attempts) == (kind, *verdict)


@pytest.mark.parametrize(("error", "_kind", "_verdict"), ERRORS, ids=range(len(ERRORS)))
def test_a_classified_error_can_be_pickled_and_holds_nothing_of_the_driver(
    error: Exception, _kind: str, _verdict: object
) -> None:
    failed = classify_error(error)
    failed.place = "/app/queries.py:7 in friends_of"
    copied = pickle.loads(pickle.dumps(failed))  # noqa: S301 - our own bytes
    assert (copied.kind, str(copied), copied.is_transient, copied.max_attempts, copied.place) == (
        failed.kind, str(failed), failed.is_transient, failed.max_attempts, failed.place,
    )  # fmt: skip
    assert failed.__dict__.keys() == {"kind", "is_transient", "max_attempts", "bookmarks", "why", "place"}
    assert (copied.bookmarks, copied.why) == (failed.bookmarks, failed.why)


@pytest.mark.parametrize(
    ("error", "kind", "fault"),
    [
        (server_error("DatabaseError.General.UnknownError"), "bookmark", BookmarkFault.REFUSED),
        (server_error("ClientError.Transaction.InvalidBookmark"), "bookmark", BookmarkFault.REFUSED),
        (server_error("TransientError.Transaction.BookmarkTimeout"), "bookmark_timeout", BookmarkFault.NOT_REACHED),
        (
            server_error("ClientError.Transaction.TransactionTimedOutClientConfiguration"),
            "bookmark_timeout",
            BookmarkFault.NOT_REACHED,
        ),
        (SoftTimeLimitExceeded(), "bookmark_timeout", BookmarkFault.NOT_REACHED),
        (server_error("ClientError.Security.Unauthorized"), "auth", BookmarkFault.NONE),
        (server_error("TransientError.General.DatabaseUnavailable"), "transient", BookmarkFault.NONE),
        (driver_errors.ServiceUnavailable("gone"), "graph_unavailable", BookmarkFault.NONE),
    ],
    ids=repr,
)
def test_an_error_while_a_begin_waits_for_bookmarks_is_attributed_to_them_where_possible(
    error: Exception, kind: str, fault: BookmarkFault
) -> None:
    failed = classify_error(error, waits_for_bookmarks=True)
    assert (failed.kind, failed.bookmarks) == (kind, fault)


def test_a_long_text_of_an_error_is_cut() -> None:
    assert len(str(classify_error(RuntimeError("x" * 100_000)))) < 600


def refuse(uri: str, **_: object) -> None:
    raise driver_errors.ConfigurationError(f"no: {uri!r}")


def test_a_uri_that_the_driver_refuses_is_a_wrong_setting_shown_without_the_driver_s_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(neo4j.GraphDatabase, "driver", refuse)
    with pytest.raises(ConfigurationError, match=r"NEO4J_URI='neo4j://h\?password=\*\*\*' is not valid") as caught:
        Origin(WorkerSettings(neo4j_uri="neo4j://h?password=c4nary"))
    assert "c4nary" not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None  # a traceback would show the driver's text


def test_a_worker_says_at_its_start_that_the_driver_refuses_its_uri(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neo4j.GraphDatabase, "driver", refuse)
    problems = log_problems(WorkerSettings(neo4j_uri="neo4j://h?password=c4nary", redis_url="redis://127.0.0.1:1/0"))
    assert any("the driver refuses it (ConfigurationError)" in problem for problem in problems)
    assert "c4nary" not in str(problems)
