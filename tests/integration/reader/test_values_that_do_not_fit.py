"""Values that do not fit a reader's type: the read fails, and is refreshed all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from api_client import DecodeError, Entry, QueryCall, RefreshState
from tests.integration.reader.conftest import MakeReader, NewKey, wait_until_received
from tests.support.any_reader import AnyReader
from tests.support.event_recorder import EventRecorder
from tests.support.fake_worker import WorkedKey
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

TYPED: dict[str, Callable[[AnyReader], Any]] = {
    "get": lambda reader: reader.get("q", {}, type=int),
    "entry": lambda reader: reader.get_entry("q", {}, type=int).value,
    "bounded": lambda reader: reader.get("q", {}, type=int, max_age="9d"),
    "batch": lambda reader: _only(reader.get_many([QueryCall("q", {}, type=int)])),
}


def _only(results: list[Any]) -> Any:
    (result,) = results
    if isinstance(result, Exception):
        raise result
    return result.value


def reads_later(reader: AnyReader, value: object, typed: Callable[[AnyReader], Any] = TYPED["get"]) -> None:
    """Read until the new value is there: the in-process tier may be notified a moment later."""

    def is_read() -> bool:
        try:
            return bool(typed(reader) == value)
        except DecodeError:
            return False

    eventually(is_read, "the new value is read")


def recovers(
    reader: AnyReader, key: WorkedKey, events: EventRecorder, typed: Callable[[AnyReader], Any] = TYPED["get"]
) -> None:
    """The read fails, its trigger makes a worker load the key, and the next read has the new value."""
    with pytest.raises(DecodeError):
        typed(reader)
    key.load(42)
    assert events["read failed"] == [["decode"]]
    reads_later(reader, 42, typed)


@pytest.mark.parametrize("typed", TYPED.values(), ids=TYPED)
def test_a_stale_value_that_does_not_fit_is_refreshed(
    reader: AnyReader, new_key: NewKey, typed: Callable[[AnyReader], Any], events: EventRecorder
) -> None:
    key = new_key()
    key.store_value("text", age_seconds=20, ttl_seconds=10)
    recovers(reader, key, events, typed)


def test_a_stale_value_in_the_tier_that_does_not_fit_is_refreshed(
    make_reader: MakeReader,
    new_key: NewKey,
    control: redis.Redis,
    events: EventRecorder,
) -> None:
    reader, key = make_reader(local_max_entries=100, local_max_age_seconds=600), new_key()
    # Not yet stale when it is kept, by a reader that takes any type.
    key.store_value("text", ttl_seconds=0.3)
    wait_until_received(reader, control)
    assert reader.get("q", {}) == "text"
    kept = key.now_us()
    eventually(lambda: key.now_us() > kept + 400_000, "it is stale")
    recovers(reader, key, events)


def test_a_broken_payload_is_refreshed(reader: AnyReader, new_key: NewKey, control: redis.Redis) -> None:
    key = new_key()
    key.store_value("text", age_seconds=20, ttl_seconds=10)
    raw = control.get(key.key.entry)
    assert isinstance(raw, bytes)
    control.set(key.key.entry, raw[:-1])
    with pytest.raises(DecodeError):
        reader.get("q", {})
    key.load("whole")
    reads_later(reader, "whole", lambda reader: reader.get("q", {}))


@pytest.mark.usefixtures("suppression_outlasts_the_test")
def test_many_reads_of_a_value_that_does_not_fit_trigger_one_refresh(
    reader: AnyReader, new_key: NewKey, events: EventRecorder
) -> None:
    key = new_key()
    key.store_value("text", age_seconds=20, ttl_seconds=10)
    bad, good = reader.get_many([QueryCall("q", {}, type=int), QueryCall("q", {})])
    assert isinstance(bad, DecodeError)
    assert isinstance(good, Entry)
    assert good.refresh is RefreshState.SUPPRESSED
    for _ in range(3):
        with pytest.raises(DecodeError):
            reader.get("q", {}, type=int)
    assert reader.flush(MAX_WAIT_SECONDS)
    assert events["triggered"] == [["stale"]]
