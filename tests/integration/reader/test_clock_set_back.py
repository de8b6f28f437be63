"""Redis' clock was set back: an entry from what is now the future is served, and refreshed at once.

Once entry and record of a key are both gone, its tokens restart from that clock, below those already seen.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from api_client import Entry, EntryState, RefreshState
from api_client.protocol.clock import monotonic_seconds
from tests.integration.reader.conftest import MakeReader, NewKey, wait_until_received
from tests.support.any_reader import AnyReader, client_of
from tests.support.fake_worker import WorkedKey
from tests.support.internals import link_of, never_resync
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

HOUR_SECONDS = 3_600.0
AGAIN = 3  # decoded, compared with what was decoded, known: three ways to the same result


@pytest.fixture(params=["redis", "tier"])
def reader(request: pytest.FixtureRequest, make_reader: MakeReader) -> AnyReader:
    """In the tier an entry stays for as long as a test takes."""
    return make_reader(local_max_entries=1_000 if request.param == "tier" else 0, local_max_age_seconds=600.0)


@pytest.mark.usefixtures("suppression_outlasts_the_test")
def test_an_entry_from_the_future_is_stale_and_triggers_a_refresh(
    reader: AnyReader, new_key: NewKey, control: redis.Redis
) -> None:
    key = new_key()
    key.store_value("old", age_seconds=-HOUR_SECONDS)
    wait_until_received(reader, control)
    entries = [reader.get_entry("q", {}) for _ in range(AGAIN)]
    assert [(entry.value, entry.state) for entry in entries] == [("old", EntryState.STALE)] * AGAIN
    assert [entry.refresh for entry in entries] == [RefreshState.TRIGGERED] + [RefreshState.SUPPRESSED] * (AGAIN - 1)
    assert all((entry.age, entry.ttl_remaining) == (0.0, 0.0) for entry in entries)
    key.load("new", soft_expiry_us=key.now_us() + int(HOUR_SECONDS * 1e6))
    eventually(lambda: reader.get("q", {}) == "new", "the commit is seen")


def test_an_entry_stored_just_ahead_of_the_reader_s_clock_is_fresh(
    reader: AnyReader, new_key: NewKey, control: redis.Redis
) -> None:
    new_key().store_value("new", age_seconds=-0.2)
    wait_until_received(reader, control)
    for _ in range(AGAIN):
        entry = reader.get_entry("q", {})
        assert (entry.value, entry.state, entry.refresh) == ("new", EntryState.FRESH, RefreshState.NONE)


def read_alone(reader: AnyReader) -> Entry[Any]:
    return reader.get_entry("q", {"n": 1})


def read_in_a_batch(reader: AnyReader) -> Entry[Any]:
    (entry,) = reader.get_many([("q", {"n": 1})])
    assert isinstance(entry, Entry)
    return entry


@pytest.mark.parametrize("read", [read_alone, read_in_a_batch])
def test_a_reader_with_a_wrong_clock_offset_syncs_it_again(
    make_reader: MakeReader, new_key: NewKey, read: Callable[[AnyReader], Entry[Any]]
) -> None:
    reader = make_reader()
    new_key().store_value("new")
    assert reader.get("q", {}) == "new"
    clock = link_of(client_of(reader)).routes.clock
    clock.sync(clock.now_us() - int(HOUR_SECONDS * 1e6), asked_at=monotonic_seconds())
    never_resync(clock)  # only an implausible entry makes it sync
    new_key(params={"n": 1}).store_value("new")
    assert read(reader).state is EntryState.STALE
    eventually(lambda: read(reader).state is EntryState.FRESH, "the clock is synced")


def planted_ahead(key: WorkedKey, **changes: float) -> int:
    """Store an entry with a token that the clock will not reach for an hour; return the token."""
    return key.store_value("old", age_seconds=-HOUR_SECONDS, **changes)


def lose(key: WorkedKey) -> None:
    """Let entry and record expire."""
    key.client.delete(key.key.entry, key.key.record)


def test_a_value_with_a_lower_token_replaces_a_lost_one(
    reader: AnyReader, new_key: NewKey, pool: ThreadPoolExecutor
) -> None:
    key = new_key()
    ahead = planted_ahead(key)
    assert reader.get("q", {}) == "old"
    lose(key)
    eventually(lambda: reader.get("q", {}, timeout=0, default="gone") == "gone", "the entry is gone")
    read = pool.submit(reader.get, "q", {})
    assert key.load("new") < ahead
    assert read.result(MAX_WAIT_SECONDS) == "new"
    assert [reader.get("q", {}) for _ in range(AGAIN)] == ["new"] * AGAIN


def test_a_generation_from_before_the_clock_change_costs_each_read_one_load(
    reader: AnyReader, new_key: NewKey, pool: ThreadPoolExecutor
) -> None:
    key = new_key()
    planted_ahead(key)
    generation = reader.invalidate("q", {}).generation
    lose(key)
    for value in ("first", "second"):
        read = pool.submit(reader.get, "q", {}, min_generation=generation)
        assert key.load(value) < generation
        assert read.result(MAX_WAIT_SECONDS) == value


def test_a_wait_from_before_the_clock_change_ends_after_its_next_claim(
    make_reader: MakeReader, new_key: NewKey, pool: ThreadPoolExecutor
) -> None:
    reader, key = make_reader(), new_key()
    ahead = planted_ahead(key)
    read = pool.submit(reader.get, "q", {}, fresh=True)
    assert key.wait_for_claim() > ahead
    # Stored by a run for the lost claim: below the claim's number, so the wait does not accept it.
    below = key.store_value("below")
    key.client.delete(key.key.record)
    assert ahead > key.load("new") > below
    assert read.result(MAX_WAIT_SECONDS) == "new"
