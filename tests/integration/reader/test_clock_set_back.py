"""Redis' clock was set back: an entry that was stored in what is the future now is served, and refreshed at once."""

from __future__ import annotations

import pytest
import redis

from api_client import EntryState, RefreshState
from api_client.clock import monotonic_seconds
from tests.integration.reader.conftest import MakeReader, Play, has_heard_all
from tests.support.any_reader import AnyReader, client_of
from tests.support.played_worker import PATIENCE_SECONDS
from tests.support.waiting import eventually

HOUR_SECONDS = 3_600.0
AGAIN = 3  # decoded, compared with what was decoded, known: three ways to the same answer


@pytest.fixture(params=["redis", "tier"])
def reader(request: pytest.FixtureRequest, make_reader: MakeReader) -> AnyReader:
    """In the tier an entry stays for as long as a test takes."""
    return make_reader(local_max_entries=1_000 if request.param == "tier" else 0, local_max_age_seconds=600.0)


def test_an_entry_of_the_future_is_stale_and_asked_for(reader: AnyReader, play: Play, control: redis.Redis) -> None:
    key = play()
    key.plant_value("old", age_seconds=-HOUR_SECONDS)
    has_heard_all(reader, control)
    entries = [reader.get_entry("q", {}) for _ in range(AGAIN)]
    assert [(entry.value, entry.state) for entry in entries] == [("old", EntryState.STALE)] * AGAIN
    assert [entry.refresh for entry in entries] == [RefreshState.TRIGGERED] + [RefreshState.SUPPRESSED] * (AGAIN - 1)
    assert all((entry.age, entry.ttl_remaining) == (0.0, 0.0) for entry in entries)
    key.load("new", soft_expiry_us=key.now_us() + int(HOUR_SECONDS * 1e6))
    eventually(lambda: reader.get("q", {}) == "new", PATIENCE_SECONDS, "it has heard of the commit")


def test_an_entry_stored_just_ahead_of_the_reader_s_clock_is_fresh(
    reader: AnyReader, play: Play, control: redis.Redis
) -> None:
    play().plant_value("new", age_seconds=-0.2)
    has_heard_all(reader, control)
    for _ in range(AGAIN):
        entry = reader.get_entry("q", {})
        assert (entry.value, entry.state, entry.refresh) == ("new", EntryState.FRESH, RefreshState.NONE)


def test_a_reader_that_is_wrong_about_the_clock_learns_it_again(make_reader: MakeReader, play: Play) -> None:
    reader = make_reader()
    play().plant_value("new")
    assert reader.get("q", {}) == "new"
    clock = client_of(reader)._link.health.clock
    clock.learn(clock.now_us() - int(HOUR_SECONDS * 1e6), asked_at=monotonic_seconds())
    clock._relearn_at = float("inf")  # but for the doubt, it would never ask
    play(params={"n": 1}).plant_value("new")
    assert reader.get_entry("q", {"n": 1}).state is EntryState.STALE
    eventually(
        lambda: reader.get_entry("q", {"n": 1}).state is EntryState.FRESH, PATIENCE_SECONDS, "it has learnt the clock"
    )
