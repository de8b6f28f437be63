"""The reader's errors: their messages, pickled and copied."""

from __future__ import annotations

import copy
import pickle

import pytest

import api_client
from api_client.config.settings import ReaderSettings
from api_client.errors import (
    CacheError,
    CacheUnavailable,
    ConfigurationError,
    DecodeError,
    InvalidQuery,
    RefreshFailed,
    TriggerFailed,
    UnknownQuery,
    WaitTimeout,
    twin,
)
from api_client.protocol.keys import make_key
from api_client.trigger.backlog import TriggerDropped
from api_client.trigger.manual import ManualRefresh

ERRORS = [
    CacheUnavailable("it is down", query="q"),
    ConfigurationError("CACHE_REDIS_URL", "'x'", "expected a URL"),
    DecodeError("it does not fit", query="q"),
    InvalidQuery("no name", query="q"),
    RefreshFailed("q", "syntax", 2, 3.0),
    TriggerFailed("it could not be published", query="q"),
    UnknownQuery("q", 2, 1, 3.0),
    WaitTimeout("q", 1.0, "queued"),
]


def test_the_cases_cover_every_public_error() -> None:
    public = [getattr(api_client, name) for name in api_client.__all__]
    errors = {error for error in public if isinstance(error, type) and issubclass(error, CacheError)}
    assert {type(error) for error in ERRORS} == errors - {CacheError}


@pytest.mark.parametrize(
    ("error", "why"), [(TimeoutError(), "within 3 s"), (ConnectionError("it is down"), "it is down")]
)
def test_a_refresh_that_is_not_published_says_why(error: Exception, why: str) -> None:
    manual = ManualRefresh(make_key("test", "q", None, 1), ReaderSettings(), has_waiter=False)
    assert why in str(manual.failed(error))


def test_an_unknown_query_says_where_the_names_are() -> None:
    error = UnknownQuery("q", 2)
    assert str(error).endswith("is the name right? `refresher queries` lists them in a worker's environment")
    assert repr(error) == f"UnknownQuery({str(error)!r})"


def test_a_trigger_that_was_dropped_says_why_once_also_as_a_copy() -> None:
    assert str(twin(TriggerDropped("backlog"))) == "it was not tried (backlog)"


def test_a_refresh_dropped_by_the_open_breaker_names_the_broker_s_setting_and_its_failure() -> None:
    dropped = twin(TriggerDropped("breaker", "it refuses this user"))
    manual = ManualRefresh(make_key("test", "q", None, 1), ReaderSettings(), has_waiter=False)
    why = "the broker (CACHE_BROKER_URL) failed repeatedly, and is not tried again yet: it refuses this user"
    assert str(manual.failed(dropped)).endswith(why)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling_and_copying(error: CacheError) -> None:
    for copied in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301 - our own bytes
        assert (type(copied), str(copied), copied.args) == (type(error), str(error), error.args)
        assert copied.__dict__ == error.__dict__
