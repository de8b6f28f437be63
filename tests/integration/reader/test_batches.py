"""Many reads in one call."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from api_client import (
    CacheError,
    DecodeError,
    Entry,
    EntryState,
    InvalidQuery,
    QueryCall,
    RefreshFailed,
    RefreshState,
    WaitTimeout,
)
from tests.integration.reader.conftest import MakeReader, NewKey, wait_until_received
from tests.support.any_reader import AnyReader
from tests.support.event_recorder import EventRecorder
from tests.support.waiting import MAX_WAIT_SECONDS


def values(results: list[Entry[object] | CacheError]) -> list[object]:
    return [result if isinstance(result, CacheError) else result.value for result in results]


def test_hits_are_returned_in_order(reader: AnyReader, new_key: NewKey, events: EventRecorder) -> None:
    for number in range(50):
        new_key("a", {"n": number}).store_value(number)
    new_key("b").store_value(None)
    calls = [("a", {"n": number}) for number in reversed(range(50))]
    results = reader.get_many([("b", None), *calls, QueryCall("b")])
    assert values(results) == [None, *reversed(range(50)), None]
    assert {(entry.state, entry.refresh) for entry in results if isinstance(entry, Entry)} == {
        (EntryState.FRESH, RefreshState.NONE)
    }
    assert events.recorded == [("hit", "fresh", "")] * 52


def test_an_empty_batch_returns_nothing(reader: AnyReader) -> None:
    assert reader.get_many([]) == []


def test_each_item_has_its_own_result_or_error(
    reader: AnyReader, new_key: NewKey, pool: ThreadPoolExecutor, events: EventRecorder
) -> None:
    new_key("there").store_value("text")
    new_key("stale").store_value("old", age_seconds=20, ttl_seconds=10)
    calls = [
        ("there", {}),
        ("no name", {}),
        QueryCall("there", {}, type=int),
        ("cold", {}),
        ("stale", {}),
        ("fails", {}),
        QueryCall("there", version=0),
        ("cold", {}),
    ]
    reading = pool.submit(reader.get_many, calls)
    new_key("cold").load("new")
    new_key("fails").abandon(kind="syntax", attempts=2)
    there, no_name, no_int, cold, stale, fails, no_version, cold_again = reading.result(MAX_WAIT_SECONDS)
    assert isinstance(there, Entry)
    assert isinstance(no_name, InvalidQuery)
    assert isinstance(no_int, DecodeError)
    assert isinstance(cold, Entry)
    assert isinstance(cold_again, Entry)
    assert (cold.value, cold.state, cold_again.token) == ("new", EntryState.MISS, cold.token)
    assert isinstance(stale, Entry)
    assert (stale.state, stale.refresh) == (EntryState.STALE, RefreshState.TRIGGERED)
    assert isinstance(fails, RefreshFailed)
    assert (fails.query, fails.kind, fails.attempts) == ("fails", "syntax", 2)
    assert isinstance(no_version, InvalidQuery)
    assert sorted(events["read failed"]) == [["decode"], ["refresh_failed"]]  # an invalid item is not counted as a read


def test_items_of_one_key_do_not_share_a_mutable_value(reader: AnyReader, new_key: NewKey) -> None:
    new_key().store_value([1])
    first, second = reader.get_many([("q", None)] * 2)
    assert isinstance(first, Entry)
    assert isinstance(second, Entry)
    first.value.append(2)
    assert second.value == [1]


def test_options_apply_to_all_items(reader: AnyReader, new_key: NewKey, pool: ThreadPoolExecutor) -> None:
    keys = [new_key("q", {"n": number}) for number in range(3)]
    for key in keys:
        key.store_value("old", age_seconds=60)
    calls = [("q", {"n": number}) for number in range(3)]
    assert values(reader.get_many(calls, max_age="1h")) == ["old"] * 3
    reading = pool.submit(reader.get_many, calls, fresh=True)
    for key in keys:
        key.load("new")
    assert values(reading.result(MAX_WAIT_SECONDS)) == ["new"] * 3
    assert all(isinstance(result, WaitTimeout) for result in reader.get_many(calls, fresh=True, timeout=0))


def test_unknown_options_and_too_many_items_are_refused(reader: AnyReader) -> None:
    with pytest.raises(InvalidQuery, match="no option 'default'"):
        reader.get_many([("q", None)], default=None)
    with pytest.raises(InvalidQuery, match="10000"):
        reader.get_many([("q", None)] * 10_001)
    with pytest.raises(InvalidQuery, match=r"get_many\(None\): expected pairs of query and params"):
        reader.get_many(None)  # type: ignore[arg-type]


def test_an_item_with_an_invalid_type_fails_alone(reader: AnyReader, new_key: NewKey) -> None:
    new_key().store_value("v")
    bad, good = reader.get_many([QueryCall("q", type=42), QueryCall("q", type=str)])
    assert isinstance(bad, InvalidQuery)
    assert "the type for 'q': not a decodable type" in str(bad)
    assert values([good]) == ["v"]


def test_stale_items_trigger_one_refresh_each(reader: AnyReader, new_key: NewKey, events: EventRecorder) -> None:
    keys = [new_key("q", {"n": number}) for number in range(5)]
    for key in keys:
        key.store_value("old", age_seconds=20, ttl_seconds=10)
    calls = [("q", {"n": number}) for number in range(5)]
    for _ in range(3):
        assert values(reader.get_many(calls * 2)) == ["old"] * 10
    assert reader.flush(MAX_WAIT_SECONDS)
    assert events["triggered"] == [["stale"]] * 5
    assert [key.state() for key in keys] == ["queued"] * 5


def test_the_local_cache_serves_what_it_has(
    make_reader: MakeReader, new_key: NewKey, control: redis.Redis, sent: Callable[[str], int]
) -> None:
    reader = make_reader(local_max_entries=100, local_max_age_seconds=600)
    for number in range(4):
        new_key("q", {"n": number}).store_value(number)
    wait_until_received(reader, control)
    calls = [("q", {"n": number}) for number in range(4)]
    assert values(reader.get_many(calls[:2])) == [0, 1]
    assert sent("get") == 2
    for _ in range(3):
        assert values(reader.get_many(calls)) == [0, 1, 2, 3]
    assert sent("get") == 4


def test_an_item_s_own_version_takes_precedence(reader: AnyReader, new_key: NewKey) -> None:
    for version in (1, 2, 3):
        new_key(version=version).store_value(version)
    calls = [("q", None), QueryCall("q", version=3), ("q", None), QueryCall("q")]
    assert values(reader.get_many(calls, version=2)) == [2, 3, 2, 1]
    assert values(reader.get_many(calls)) == [1, 3, 1, 1]
