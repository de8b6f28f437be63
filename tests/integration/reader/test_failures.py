"""Errors that a reader raises, those that a default replaces, and calls refused before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import redis

from api_client import (
    CacheUnavailable,
    DecodeError,
    InvalidQuery,
    RefreshFailed,
    RefreshState,
    UnknownQuery,
    WaitTimeout,
)
from api_client.protocol import lease
from api_client.protocol.lease import FailReply
from refresher.embedded import RedisServer, free_port
from tests.integration.reader.conftest import MakeReader, NewKey
from tests.support.any_reader import AnyReader, callers_waiting, client_of
from tests.support.event_recorder import EventRecorder
from tests.support.fake_worker import WorkedKey
from tests.support.internals import link_of
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

WAITERS = 5


@pytest.fixture
def cut_off(make_reader: MakeReader) -> AnyReader:
    """A reader whose Redis can't be reached."""
    nowhere = f"redis://127.0.0.1:{free_port()}/0"
    return make_reader(redis_url=nowhere, broker_url=nowhere)


def test_a_failure_is_raised_to_all_waiters_and_to_callers_during_the_backoff(
    reader: AnyReader, new_key: NewKey, pool: ThreadPoolExecutor, events: EventRecorder
) -> None:
    key = new_key()
    reads = [pool.submit(reader.get, "q", {}) for _ in range(WAITERS)]
    eventually(lambda: callers_waiting(reader) == [WAITERS], "they wait")
    key.abandon(kind="syntax", attempts=3)
    errors = [read.exception(MAX_WAIT_SECONDS) for read in reads]
    with pytest.raises(RefreshFailed) as caught:
        reader.get_entry("q", {})
    for error in (*errors, caught.value):
        assert isinstance(error, RefreshFailed)
        assert (error.query, error.kind, error.attempts) == ("q", "syntax", 3)
        assert 0 < error.retry_after_seconds <= 30
    assert reader.flush(MAX_WAIT_SECONDS)
    assert events["triggered"] == [["miss"]]  # no trigger during the backoff


def fail_in_a_row(key: WorkedKey, times: int) -> FailReply:
    """Fail ``times`` loads of a key in a row; the pause after each but the last is over at once."""
    for number in range(times):
        nonce = b"%08d" % number
        token = key.acquire(nonce, number=key.claim(f"claim-{number}", force=True).number).token
        reply = key.store.run(
            lease.fail(
                key.key, token=token, nonce=nonce, cooling_seconds=30.0, kind="syntax", attempts=1,
                retention_seconds=60.0, longest_seconds=3_600.0,
            )
        )  # fmt: skip
        assert reply is not None
    return reply


def test_an_unreachable_broker_does_not_reset_the_count_of_consecutive_failures(
    make_reader: MakeReader, new_key: NewKey
) -> None:
    reader, key = make_reader(broker_url=f"redis://127.0.0.1:{free_port()}/1"), new_key()
    key.store_value("old", age_seconds=20, ttl_seconds=10)
    assert fail_in_a_row(key, 7).pause_seconds == 1_920.0
    key.pass_time(1_920.0)
    assert reader.get_entry("q", {}).refresh is RefreshState.TRIGGERED
    assert reader.flush(MAX_WAIT_SECONDS)
    eventually(lambda: key.state() == "idle", "the claim is taken back")
    reply = fail_in_a_row(key, 1)
    assert (reply.pause_seconds, reply.failures) == (3_600.0, 8)


@pytest.mark.parametrize("default", [None, "fallback", []], ids=repr)
def test_a_default_is_returned_on_a_failure_a_timeout_and_an_unreachable_cache(
    reader: AnyReader, cut_off: AnyReader, new_key: NewKey, pool: ThreadPoolExecutor, default: Any
) -> None:
    failing = pool.submit(reader.get, "fails", {}, default=default)
    new_key("fails").abandon()
    assert failing.result(MAX_WAIT_SECONDS) is default
    assert reader.get("slow", {}, timeout=0, default=default) is default
    assert cut_off.get("q", {}, default=default) is default


@pytest.mark.promise("Reading", "`default=` replaces a failed refresh, a timeout and a missing cache, nothing else")
def test_a_default_replaces_neither_decode_errors_nor_invalid_calls(reader: AnyReader, new_key: NewKey) -> None:
    new_key().store_value("no number")
    with pytest.raises(DecodeError):
        reader.get("q", {}, type=int, default=0)
    with pytest.raises(InvalidQuery):
        reader.get("q", {}, timeout="soon", default=0)


def test_without_redis_each_call_raises_cache_unavailable(cut_off: AnyReader, events: EventRecorder) -> None:
    calls: list[Callable[..., Any]] = [
        cut_off.get, cut_off.get_entry, cut_off.refresh, cut_off.invalidate, cut_off.explain,
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(CacheUnavailable, match="Redis") as caught:
            call("q", {})
        assert caught.value.query == "q"
    of_a_read = [("unavailable",), ("read failed", "unavailable")]
    assert events.recorded == of_a_read * 2
    (many,) = cut_off.get_many([("q", {})])
    assert isinstance(many, CacheUnavailable)
    assert events.recorded == of_a_read * 3


def test_explain_raises_cache_unavailable_where_redis_refuses(
    make_reader: MakeReader, clean_redis: RedisServer
) -> None:
    with redis.Redis.from_url(clean_redis.url()) as control:
        control.execute_command("ACL", "SETUSER", "some", "reset", "on", ">x", "~*", "&*", "+@all", "-pttl")
        try:
            reader = make_reader(redis_url=f"redis://some:x@{clean_redis.host}:{clean_redis.port}/0")
            with pytest.raises(CacheUnavailable, match="pttl") as caught:
                reader.explain("q", {})
        finally:
            control.execute_command("ACL", "DELUSER", "some")
    assert caught.value.query == "q"


def test_each_failed_read_is_reported_with_its_reason_even_with_a_default(
    reader: AnyReader, cut_off: AnyReader, new_key: NewKey, pool: ThreadPoolExecutor, events: EventRecorder
) -> None:
    failing = pool.submit(reader.get, "fails", {}, default=None)
    new_key("fails").abandon()
    assert failing.result(MAX_WAIT_SECONDS) is None
    unknown = pool.submit(reader.get_entry, "nobody_knows", {})
    new_key("nobody_knows").abandon(kind="unknown_query")
    assert isinstance(unknown.exception(MAX_WAIT_SECONDS), UnknownQuery)
    assert reader.get("slow", {}, timeout=0, default=None) is None
    new_key("text").store_value("no number")
    with pytest.raises(DecodeError):
        reader.get("text", {}, type=int)
    assert cut_off.get("q", {}, default=None) is None
    why = ["refresh_failed", "unknown_query", "timeout", "decode", "unavailable"]
    assert events["read failed"] == [[one] for one in why]
    assert reader.get("text", {}) == "no number"
    assert len(events["read failed"]) == len(why)


BAD_CALLS: list[tuple[str, Any, dict[str, Any], str]] = [
    ("", {}, {}, "query"),
    ("no spaces", {}, {}, "query"),
    ("q" * 300, {}, {}, "query"),
    ("q", {"n": object()}, {}, "object"),
    ("q", {"n": float("nan")}, {}, "n"),
    ("q", {1: 2}, {}, "text|str|name"),
    ("q", {"n": "x" * 20_000}, {}, "16"),
    ("q", ["no", "dict"], {}, "params|dict"),
    ("q", {}, {"version": 0}, "version"),
    ("q", {}, {"version": 70_000}, "version"),
]
BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"max_age": "old"}, "max_age"),
    ({"timeout": -1}, "timeout"),
    ({"min_generation": True}, "min_generation"),
    ({"fresh": "no"}, "fresh='no' of .*: expected True or False"),
    ({"min_bookmarks": ["b"] * 17}, "bookmarks"),
    ({"maxage": 1}, "no option 'maxage'; did you mean max_age?"),
]
"""One of each kind; all of them: tests/unit/api_client/read/test_evaluate_and_requirements.py."""


@pytest.mark.promise("Reading", "A wrong name or wrong params are found before anything is sent")
@pytest.mark.parametrize(("query", "params", "options", "why"), BAD_CALLS, ids=lambda value: repr(value)[:20])
def test_a_call_with_an_invalid_query_params_or_version_is_refused_before_anything_is_sent(
    cut_off: AnyReader, query: str, params: Any, options: dict[str, Any], why: str
) -> None:
    calls: list[Callable[..., Any]] = [
        cut_off.get, cut_off.get_entry, cut_off.refresh, cut_off.invalidate, cut_off.explain, cut_off.key,
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(InvalidQuery, match=why):
            call(query, params, **options)


@pytest.mark.parametrize(("options", "why"), BAD_OPTIONS, ids=lambda value: repr(value)[:30])
def test_an_invalid_option_is_refused_before_anything_is_sent(
    cut_off: AnyReader, events: EventRecorder, options: dict[str, Any], why: str
) -> None:
    for read in (cut_off.get, cut_off.get_entry):
        with pytest.raises(InvalidQuery, match=why) as caught:
            read("q", {}, **options)
        assert caught.value.query == "q"
    with pytest.raises(InvalidQuery, match=why):
        cut_off.get_many([("q", {})], **options)
    assert events.recorded == []
    assert not link_of(client_of(cut_off)).routes.clock.is_known


@pytest.mark.parametrize("wrong", ["no", "false", 0, 1, None, []], ids=repr)
def test_a_string_or_number_is_refused_as_a_flag(cut_off: AnyReader, wrong: Any) -> None:
    with pytest.raises(InvalidQuery, match=r"hard=.* of 'q': expected True or False"):
        cut_off.invalidate("q", {}, hard=wrong)
    with pytest.raises(InvalidQuery, match=r"wait=.* of 'q': expected True or False"):
        cut_off.refresh("q", {}, wait=wrong)


def test_numpy_scalars_are_accepted_as_options(reader: AnyReader, new_key: NewKey) -> None:
    token = new_key().store_value("v", age_seconds=60)
    assert reader.get("q", {}, max_age=np.int64(600), fresh=np.bool_(False)) == "v"
    assert reader.get("q", {}, min_generation=np.int64(token - 1), timeout=np.float32(0.5)) == "v"
    with pytest.raises(WaitTimeout):
        reader.get("q", {}, min_generation=np.int64(token), timeout=np.int8(0))


def test_bookmarks_of_an_invalidation_are_validated(cut_off: AnyReader) -> None:
    for bookmarks in ("one text", ["line\nbreak"], ["b"] * 17):
        with pytest.raises(InvalidQuery, match="bookmarks"):
            cut_off.invalidate("q", {}, bookmarks=bookmarks)
    with pytest.raises(InvalidQuery, match=r"\.raw_values"):  # the driver's own object
        cut_off.invalidate("q", {}, bookmarks=object())
