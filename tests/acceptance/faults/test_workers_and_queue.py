"""What a reader returns while no worker consumes, or the queue is full; and that it recovers by itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from api_client import EntryState, RefreshState, WaitTimeout
from tests.acceptance.faults.conftest import QUERY, MakeReader, World, check_waits_time_out
from tests.support.any_reader import answer_of
from tests.support.event_recorder import EventRecorder
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

WAIT_SECONDS = 0.7


@pytest.fixture
def world(make_own_world: Callable[[], World]) -> World:
    return make_own_world()


@pytest.mark.failure("R5")
@pytest.mark.usefixtures("suppression_outlasts_the_test")
def test_without_workers_hits_are_served_misses_time_out_and_the_queue_keeps_requests(
    world: World, make_reader: MakeReader, events: EventRecorder
) -> None:
    fresh, stale, cold, manual = world.fresh(), world.stale(), world.unknown(), world.unknown()
    reader = make_reader(world, wait_timeout_ms=WAIT_SECONDS * 1000)
    world.kill_workers()
    assert reader.get_entry(QUERY, fresh).state is EntryState.FRESH
    hit = reader.get_entry(QUERY, stale)
    assert (hit.state, hit.refresh) == (EntryState.STALE, RefreshState.TRIGGERED)
    assert reader.flush(MAX_WAIT_SECONDS)
    again = reader.get_entry(QUERY, stale)
    assert (again.state, again.refresh) == (EntryState.STALE, RefreshState.SUPPRESSED)
    check_waits_time_out(reader, world, cold, WAIT_SECONDS)
    assert reader.refresh(QUERY, manual) is RefreshState.TRIGGERED
    assert reader.refresh(QUERY, manual) is RefreshState.SUPPRESSED
    assert reader.invalidate(QUERY, fresh).generation > 0
    assert reader.flush(MAX_WAIT_SECONDS)
    assert (events.count("hit: fresh"), events.count("hit: stale"), events.count("miss")) == (1, 2, 2)
    assert events.count("triggered: invalidated") == 1
    assert events.count("triggered: miss") == 2
    assert events.count("unavailable") == events.count("failed") == 0

    world.start_worker()
    # No new request is needed: the messages are there.
    eventually(lambda: world.parts.loads(manual["key"]) == world.parts.loads(cold["key"]) == 1, "it loads them")
    eventually(lambda: reader.get_entry(QUERY, stale).state is EntryState.FRESH, "the stale one is refreshed")


@pytest.mark.promise("Refreshing", "Beyond the queue's bound, only early refreshes are dropped")
@pytest.mark.failure("R6")
def test_a_full_queue_drops_early_refreshes_and_nothing_else(
    world: World, make_reader: MakeReader, events: EventRecorder
) -> None:
    early, stale = {"key": "early"}, world.stale()
    world.healthy.get(QUERY, early)
    world.parts.make_every_draw_positive(world.healthy, QUERY, early)
    reader = make_reader(world, queue_size=1, wait_timeout_ms=WAIT_SECONDS * 1000)
    world.kill_workers()
    reader.refresh(QUERY, world.unknown())  # one waits: the queue is full

    hit = reader.get_entry(QUERY, early)
    assert (hit.state, hit.refresh) == (EntryState.FRESH, RefreshState.TRIGGERED)
    assert reader.flush(MAX_WAIT_SECONDS)
    assert events.count("dropped: backpressure") == 1
    assert reader.get_entry(QUERY, stale).state is EntryState.STALE
    assert reader.refresh(QUERY, world.unknown()) is RefreshState.TRIGGERED
    assert isinstance(answer_of(reader.get, QUERY, world.unknown()).error, WaitTimeout)
    assert reader.flush(MAX_WAIT_SECONDS)
    assert events.count("triggered: invalidated") == events.count("triggered: miss") == 1

    world.start_worker()
    eventually(lambda: world.parts.loads(stale["key"]) == 2, "the stale one is loaded")
    eventually(
        lambda: reader.get(QUERY, early) and world.parts.loads(early["key"]) == 2,
        "the queue is empty again, and early refreshes go",
    )
