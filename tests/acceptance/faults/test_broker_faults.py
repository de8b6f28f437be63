"""What a reader returns, and when, while the broker fails; and that it recovers by itself."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Collection
from contextlib import ExitStack
from functools import partial

import psutil
import pytest

from api_client import EntryState, RefreshState, TriggerFailed, WaitTimeout
from tests.acceptance.faults.conftest import (
    EACH_BROKER,
    QUERY,
    READER_SILENCE_SECONDS,
    MakeReader,
    Proxies,
    World,
    check_waits_time_out,
    with_open_connections,
)
from tests.servers.restarts import restart
from tests.support.any_reader import answer_of
from tests.support.event_recorder import EventRecorder
from tests.support.fault_proxy import FaultProxy
from tests.support.timing import MAX_STALL_SECONDS, promptly
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

WAIT_SECONDS = 0.7
PUBLISH_SECONDS = 3.0  # how long refresh() waits for its publication
# The broker's breaker pauses for a second, or for two after a failed probe; then the next read triggers.
HEALED_SECONDS = 2.0 + READER_SILENCE_SECONDS
MAX_PAUSE_SECONDS = 30.0
BREAKER_THRESHOLD = 3
ROUND_TRIP_SECONDS = 0.3
FAULTS: dict[str, Callable[[FaultProxy], None]] = {
    "hung": FaultProxy.hangs,
    "loses_replies": FaultProxy.drops_replies,
    "refused": FaultProxy.refuses,
}
HOLDS: dict[str, Callable[[FaultProxy], None]] = {
    "loses_replies": FaultProxy.drops_replies,
    "slow": partial(FaultProxy.slows, delay_seconds=MAX_WAIT_SECONDS),
}
patient = pytest.mark.usefixtures("patient_publishers")


class Leftovers:
    """Finds threads and connections that were not there when it was created."""

    def __init__(self) -> None:
        self._before = set(threading.enumerate())

    def check(self, ports: Collection[int]) -> None:
        """Assert that no thread is left, no connection to ``ports``, and none for the garbage collector to close."""
        eventually(lambda: not self._found(ports), f"nothing is left: {self._found(ports)}")
        gc.collect()  # an unclosed socket is a ResourceWarning, which is an error

    def _found(self, ports: Collection[int]) -> list[str]:
        threads = [thread.name for thread in threading.enumerate() if thread not in self._before]
        open_now = psutil.Process(os.getpid()).net_connections("tcp")
        return threads + [
            f"connection to port {one.raddr.port} ({one.status})"
            for one in open_now
            if one.raddr and one.raddr.port in ports and one.status != psutil.CONN_TIME_WAIT
        ]


@pytest.fixture(autouse=True)
def publishers() -> None:
    """Their timeouts are what is tested, unless a test is marked `patient`."""


@pytest.fixture(params=["redis", "rabbitmq"])
def world(request: pytest.FixtureRequest) -> World:
    """Both brokers."""
    made: World = request.getfixturevalue(f"world_on_{request.param}")
    return made


@pytest.mark.promise("Reading", "No hit waits while the broker is down or slow")
@pytest.mark.failure("R1", "R2")
@EACH_BROKER
@pytest.mark.usefixtures("suppression_outlasts_the_test")
@pytest.mark.parametrize("fault", sorted(HOLDS))
def test_no_hit_and_no_invalidation_waits_for_a_publication_that_hangs(
    world: World,
    make_reader: MakeReader,
    proxies: Proxies,
    events: EventRecorder,
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Half a second in production. This long, a wait for it can be distinguished from the delays of a busy machine.
    monkeypatch.setattr("api_client.trigger.broker.TIMEOUT_SECONDS", MAX_WAIT_SECONDS)
    fresh, stale, others = world.fresh(), world.stale(), [world.stale() for _ in range(5)]
    reader = with_open_connections(make_reader(world), world)
    published = events.count("triggered: invalidated")
    HOLDS[fault](proxies.before(world.broker_url))
    answers = [answer_of(reader.get_entry, QUERY, params) for params in (stale, stale, fresh, *others)]
    answers.append(answer_of(reader.invalidate, QUERY, fresh))
    # The publication has neither succeeded nor failed: no call can have waited for it.
    assert (events.count("triggered: invalidated"), events.count("failed"), events.count("dropped: breaker")) == (
        published,
        0,
        0,
    )
    assert [answer.error for answer in answers] == [None] * len(answers)
    assert answers[0].value.refresh is RefreshState.TRIGGERED
    # The message has reached the broker, though its reply is held back: a worker may be done with it by now.
    if answers[1].value.state is not EntryState.FRESH:
        assert answers[1].value.refresh is RefreshState.SUPPRESSED


@pytest.mark.failure("R1")
@EACH_BROKER
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_while_the_broker_fails_hits_are_served_and_misses_and_refreshes_fail_in_time(
    world: World, make_reader: MakeReader, proxies: Proxies, events: EventRecorder, fault: str, stack: ExitStack
) -> None:
    fresh, stale, invalidated = world.fresh(), world.stale(), world.fresh()
    ports = [proxies.before(url).port for url in (world.cache_server.url(0), world.broker_url)]
    stack.callback(Leftovers().check, ports)  # once the reader is closed; `world.healthy` is not checked
    reader = with_open_connections(make_reader(world, wait_timeout_ms=WAIT_SECONDS * 1000), world)
    FAULTS[fault](proxies.before(world.broker_url))

    hits = [answer_of(reader.get_entry, QUERY, fresh), answer_of(reader.get_entry, QUERY, stale)]
    assert [(hit.value.state, hit.value.refresh) for hit in hits] == [
        (EntryState.FRESH, RefreshState.NONE),
        (EntryState.STALE, RefreshState.TRIGGERED),
    ]
    invalidation = answer_of(reader.invalidate, QUERY, invalidated)
    hits.append(answer_of(reader.get_entry, QUERY, invalidated))
    assert hits[-1].value.generation == invalidation.value.generation

    manual = world.unknown()
    refreshed = answer_of(reader.refresh, QUERY, manual)
    assert isinstance(refreshed.error, TriggerFailed)
    refreshed.took.at_most(PUBLISH_SECONDS + MAX_STALL_SECONDS)
    check_waits_time_out(reader, world, world.unknown(), WAIT_SECONDS)

    assert reader.flush(MAX_WAIT_SECONDS)
    # No claim is left, so the next one may claim at once; the message may have arrived all the same, and be under way.
    eventually(lambda: world.record_of(manual) == {}, "no claim is left")
    assert events.count("failed") >= 3
    assert events.count("unavailable") == 0


@pytest.mark.failure("R1")
@EACH_BROKER
@pytest.mark.parametrize("fault", ["hung", "refused"])
def test_a_stale_value_is_served_at_once_and_fresh_again_when_the_broker_is_back(
    world: World, make_reader: MakeReader, proxies: Proxies, events: EventRecorder, fault: str
) -> None:
    stale = world.stale()
    reader = make_reader(world)
    FAULTS[fault](proxies.before(world.broker_url))

    def breaker_is_open() -> bool:
        assert reader.get_entry(QUERY, stale).state is EntryState.STALE
        return events.count("dropped: breaker") > 0

    eventually(breaker_is_open, "the broker's breaker is open")

    def is_refused_untried() -> bool:
        error = answer_of(reader.refresh, QUERY, world.unknown()).error
        assert isinstance(error, TriggerFailed)
        return "not tried again yet" in str(error)

    eventually(is_refused_untried, "a refresh is no probe")
    assert reader.flush(MAX_WAIT_SECONDS)
    failed = events.count("failed")
    before = failed + events.count("triggered: invalidated")
    proxies.before(world.broker_url).passes()

    def is_tried() -> bool:
        reader.get_entry(QUERY, stale)
        return events.count("triggered: invalidated") + events.count("failed") > before

    pause_seconds = min(
        MAX_PAUSE_SECONDS, 2.0 ** (failed - BREAKER_THRESHOLD)
    )  # a second, doubled by each probe that failed
    # One probe may have been under way.
    promptly(is_tried, "it is triggered", 2 * pause_seconds + READER_SILENCE_SECONDS)
    eventually(lambda: reader.get_entry(QUERY, stale).state is EntryState.FRESH, "it is refreshed")


@pytest.mark.failure("R2")
@EACH_BROKER
@patient
def test_a_slow_broker_delays_a_miss_and_no_hit(
    world: World, make_reader: MakeReader, proxies: Proxies, events: EventRecorder
) -> None:
    fresh, stale = world.fresh(), world.stale()
    reader = with_open_connections(make_reader(world), world)
    published = events.count("triggered: invalidated")
    proxies.before(world.broker_url).holds_replies()
    hits = [answer_of(reader.get_entry, QUERY, fresh), answer_of(reader.get_entry, QUERY, stale)]
    assert [hit.value.state for hit in hits] == [EntryState.FRESH, EntryState.STALE]
    assert events.count("triggered: invalidated") == published, "no hit has waited for the broker"
    proxies.before(world.broker_url).slows(ROUND_TRIP_SECONDS)
    eventually(lambda: reader.get_entry(QUERY, stale).state is EntryState.FRESH, "it is refreshed all the same")
    refreshed = answer_of(reader.refresh, QUERY, world.unknown())
    assert refreshed.value is RefreshState.TRIGGERED
    assert refreshed.took.seconds >= ROUND_TRIP_SECONDS
    assert reader.get_entry(QUERY, world.unknown()).state is EntryState.MISS
    assert events.count("failed") == events.count("dropped: breaker") == 0


@pytest.mark.failure("R3")
@patient
def test_a_full_broker_rejects_publications_while_hits_are_served(
    world_on_redis: World, make_reader: MakeReader, events: EventRecorder
) -> None:
    world = world_on_redis
    assert world.broker_server is not None
    stale = world.stale()
    reader = with_open_connections(make_reader(world, wait_timeout_ms=WAIT_SECONDS * 1000), world)
    published = events.count("triggered: invalidated")
    with world.full(world.broker_server):
        assert reader.get_entry(QUERY, stale).state is EntryState.STALE
        assert isinstance(answer_of(reader.refresh, QUERY, world.unknown()).error, TriggerFailed)
        assert isinstance(answer_of(reader.get, QUERY, world.unknown()).error, WaitTimeout)
        assert reader.flush(MAX_WAIT_SECONDS)
        assert events.count("failed") >= 2
    # The full broker has affected the worker, too: only the reader's next publication is checked.
    promptly(
        lambda: reader.get(QUERY, stale) and events.count("triggered: invalidated") > published,
        "it is triggered",
        HEALED_SECONDS,
    )


@pytest.mark.failure("R4")
@patient
def test_reader_and_worker_recover_after_the_broker_was_killed_and_restarted(
    make_own_world: Callable[[], World], make_reader: MakeReader
) -> None:
    world = make_own_world()
    assert world.broker_server is not None
    stale = world.stale()
    reader = with_open_connections(make_reader(world), world)
    world.broker_server.kill()
    assert reader.get_entry(QUERY, stale).state is EntryState.STALE
    restart(world.broker_server, keep_data=False)
    # The worker reconnects after 2, 4, 6 … s; what was published in between waits for it.
    eventually(lambda: reader.get_entry(QUERY, stale).state is EntryState.FRESH, "it is refreshed")
