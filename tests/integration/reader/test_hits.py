"""Reads of an existing entry: on every kind of reader, with the in-process tier and without."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import redis

from api_client import EntryState, RefreshState
from tests.integration.reader.conftest import MakeReader, NewKey, wait_until_received
from tests.support.any_reader import AnyReader, local_cache_of
from tests.support.event_recorder import EventRecorder
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

pytestmark = pytest.mark.usefixtures("suppression_outlasts_the_test")


@dataclass
class Friend:
    name: str
    age: int


@pytest.fixture(params=["redis", "tier"])
def place(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def reader(make_reader: MakeReader, place: str) -> AnyReader:
    """In the tier an entry stays for as long as a test takes: the second read of a key is local."""
    return make_reader(local_max_entries=1_000 if place == "tier" else 0, local_max_age_seconds=600.0)


@pytest.fixture
def gets_of_two_reads(place: str) -> int:
    return 1 if place == "tier" else 2


@pytest.mark.promise("Reading", "A hit is one round trip")
def test_a_fresh_value_is_served_and_triggers_nothing(
    reader: AnyReader,
    new_key: NewKey,
    events: EventRecorder,
    control: redis.Redis,
    sent: Callable[[str], int],
    gets_of_two_reads: int,
) -> None:
    key = new_key()
    key.store_value({"n": 1})
    wait_until_received(reader, control)
    for _ in range(2):
        entry = reader.get_entry("q", {})
        assert (entry.value, entry.state, entry.refresh) == ({"n": 1}, EntryState.FRESH, RefreshState.NONE)
    assert reader.flush(MAX_WAIT_SECONDS)
    assert key.state() == "idle"
    assert events.recorded == [("hit", "fresh", "")] * 2
    assert sent("get") == gets_of_two_reads


def test_get_entry_returns_all_metadata(reader: AnyReader, new_key: NewKey) -> None:
    token = new_key().store_value(
        "v", age_seconds=10, ttl_seconds=1_000, beta=0.0, degree=7, generation=3, bookmarks=("b",)
    )
    for _ in range(2):
        entry = reader.get_entry("q", {})
        assert 10 <= entry.age < 10 + MAX_WAIT_SECONDS
        assert 990 - MAX_WAIT_SECONDS < entry.ttl_remaining <= 990
        assert (entry.delta, entry.beta, entry.degree) == (0.5, 0.0, 7)
        assert (entry.token, entry.generation, entry.bookmarks) == (token, 3, ("b",))


@pytest.mark.promise("Protocol", "I5: a stale value is returned at once")
def test_a_stale_value_is_served_at_once_and_triggers_one_refresh(
    reader: AnyReader,
    new_key: NewKey,
    events: EventRecorder,
    control: redis.Redis,
    sent: Callable[[str], int],
    gets_of_two_reads: int,
) -> None:
    key = new_key()
    key.store_value("old", age_seconds=20, ttl_seconds=10)
    wait_until_received(reader, control)
    first, second = reader.get_entry("q", {}), reader.get_entry("q", {})
    assert (first.value, first.state, first.refresh) == ("old", EntryState.STALE, RefreshState.TRIGGERED)
    assert (second.value, second.state, second.refresh) == ("old", EntryState.STALE, RefreshState.SUPPRESSED)
    assert -10 - MAX_WAIT_SECONDS < first.ttl_remaining <= -10
    assert reader.flush(MAX_WAIT_SECONDS)
    assert key.state() == "queued"
    assert events["hit"] == [["stale", "triggers"]] * 2
    assert events["triggered"] == [["stale"]]
    assert sent("get") == gets_of_two_reads


def test_a_value_that_grows_stale_between_two_reads_triggers_a_refresh(reader: AnyReader, new_key: NewKey) -> None:
    key = new_key()
    key.store_value("v", ttl_seconds=0.5, beta=0.0)
    entry = eventually(
        lambda: (found := reader.get_entry("q", {})).refresh is not RefreshState.NONE and found,
        "a refresh is triggered",
    )
    assert (entry.state, entry.refresh) == (EntryState.STALE, RefreshState.TRIGGERED)
    assert key.wait_for_claim()


def test_an_early_refresh_is_triggered_while_the_value_is_fresh(
    reader: AnyReader, new_key: NewKey, events: EventRecorder
) -> None:
    key = new_key()
    key.store_value("v", age_seconds=60, ttl_seconds=100, beta=1e15)  # past half of the TTL every draw is positive
    first, second = reader.get_entry("q", {}), reader.get_entry("q", {})
    assert (first.state, first.refresh) == (EntryState.FRESH, RefreshState.TRIGGERED)
    assert (second.state, second.refresh) == (EntryState.FRESH, RefreshState.SUPPRESSED)
    assert key.wait_for_claim()
    assert reader.flush(MAX_WAIT_SECONDS)
    assert events["triggered"] == [["early"]]


@pytest.mark.promise("Reading", "None and empty values are values")
@pytest.mark.parametrize("value", [None, "", 0, False, [], {}, b""], ids=repr)
def test_none_and_empty_values_are_values(reader: AnyReader, new_key: NewKey, value: Any) -> None:
    new_key().store_value(value)
    for _ in range(2):
        got = reader.get("q", {}, default="another")
        assert (got, type(got)) == (value, type(value))
        assert reader.get_entry("q", {}).value == value


def test_each_caller_gets_its_own_copy_of_a_mutable_value(reader: AnyReader, new_key: NewKey) -> None:
    new_key().store_value([1])
    for _ in range(3):
        got = reader.get("q", {})
        assert got == [1]
        got.append(2)


def test_a_value_is_decoded_into_the_type_of_each_call(reader: AnyReader, new_key: NewKey) -> None:
    new_key().store_value([{"name": "Ada", "age": 36}])
    assert reader.get("q", {}, type=list[Friend]) == [Friend("Ada", 36)]
    assert reader.get("q", {}) == [{"name": "Ada", "age": 36}]
    assert reader.get_entry("q", {}, type=list[Friend]).value == [Friend("Ada", 36)]


def test_each_version_and_each_set_of_params_has_its_own_entry(reader: AnyReader, new_key: NewKey) -> None:
    new_key(version=1).store_value("one")
    new_key(version=2).store_value("two")
    new_key(params={"n": 1}).store_value("with params")
    for _ in range(2):
        assert reader.get("q", {}) == reader.get("q", {}, version=1) == "one"
        assert reader.get("q", {}, version=2) == "two"
        assert reader.get("q", {"n": 1}) == "with params"


def make_deaf(reader: AnyReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the in-process cache ignore the invalidations that Redis sends."""
    tier = local_cache_of(reader)
    drop_all = tier.drop_all

    def drop_own(entry_keys: Sequence[str]) -> None:
        if threading.current_thread().name != "cache-invalidations":
            drop_all(entry_keys)

    monkeypatch.setattr(tier, "drop_all", drop_own)


def test_a_reader_sees_its_own_invalidation_at_once(
    reader: AnyReader,
    new_key: NewKey,
    events: EventRecorder,
    control: redis.Redis,
    place: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = new_key()
    key.store_value("v")
    wait_until_received(reader, control)
    for _ in range(2):
        reader.get("q", {})
    if place == "tier":
        make_deaf(reader, monkeypatch)
    generation = reader.invalidate("q", {}).generation
    entry = reader.get_entry("q", {})
    assert (entry.value, entry.state, entry.refresh) == ("v", EntryState.STALE, RefreshState.TRIGGERED)
    assert (entry.generation, entry.token < generation) == (generation, True)
    assert key.wait_for_claim()
    assert reader.flush(MAX_WAIT_SECONDS)
    assert events["triggered"] == [["invalidated"]]
