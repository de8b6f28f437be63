"""What a reader returns, and when, while the link to the cache's Redis fails; and that it recovers by itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from api_client import CacheUnavailable, EntryState, RefreshState
from tests.acceptance.faults.conftest import (
    QUERY,
    MakeReader,
    Proxies,
    World,
    is_fresh,
    with_open_connections,
)
from tests.support.any_reader import Answer, AnyReader, answer_of
from tests.support.event_recorder import EventRecorder
from tests.support.fault_proxy import FaultProxy
from tests.support.requirements import each_with_each
from tests.support.timing import SLACK_SECONDS, promptly
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

REDIS_TIMEOUT_SECONDS = 0.5  # CACHE_REDIS_TIMEOUT
FAILURES_THAT_OPEN_IT = 5
READS = 3  # of the calls of each kind
FAULTS: dict[str, Callable[[FaultProxy], None]] = {
    "hung": FaultProxy.hangs,
    "loses_replies": FaultProxy.drops_replies,
    "refused": FaultProxy.refuses,
    "too_slow": partial(FaultProxy.slows, delay_seconds=MAX_WAIT_SECONDS),  # a reader may wake late, and find a reply
}


def impatient(make_reader: MakeReader, world: World) -> AnyReader:
    """A reader with a short timeout."""
    return make_reader(world, redis_timeout_seconds=REDIS_TIMEOUT_SECONDS)


def calls_of(reader: AnyReader, world: World) -> list[Callable[[], object]]:
    """One call of each kind."""
    fresh, stale = world.fresh(), world.stale()
    return [
        lambda: reader.get(QUERY, fresh),
        lambda: reader.get(QUERY, stale),
        lambda: reader.get(QUERY, world.unknown()),
        lambda: reader.refresh(QUERY, world.unknown()),
        lambda: reader.invalidate(QUERY, world.unknown()),
    ]


def was_tried(answer: Answer) -> bool:
    """Whether the call was sent: the breaker's error has no cause."""
    return answer.error is None or answer.error.__cause__ is not None


def unavailable_in_time(answer: Answer) -> None:
    assert isinstance(answer.error, CacheUnavailable)
    answer.took.at_most(REDIS_TIMEOUT_SECONDS)


@pytest.mark.promise("Reading", "Each call ends within its timeout while Redis is down")
@pytest.mark.failure("R8", "R9")
@each_with_each("connected", (True, False), "make_reader", ("async", "sync"), ["make_reader"])
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_each_call_ends_within_the_timeout_and_at_once_when_the_breaker_is_open(
    world_on_redis: World, make_reader: MakeReader, proxies: Proxies, events: EventRecorder, fault: str, connected: bool
) -> None:
    world = world_on_redis
    reader = impatient(make_reader, world)
    if connected:
        with_open_connections(reader, world)
    before = events.count("unavailable")
    calls = calls_of(reader, world)
    assert len(calls) == FAILURES_THAT_OPEN_IT
    FAULTS[fault](proxies.before(world.cache_server.url()))

    for call in calls:
        unavailable_in_time(answer_of(call))
    assert events.count("unavailable") - before == READS

    def none_is_tried() -> bool:
        """Any of them may be a probe on a busy machine; a call that was not tried has an error without a cause."""
        answers = [answer_of(call) for call in calls]
        for answer in answers:
            unavailable_in_time(answer)
        return not any(map(was_tried, answers))

    eventually(none_is_tried, "the breaker is open")
    assert answer_of(reader.get, QUERY, world.unknown(), default="fallback").value == "fallback"
    assert (events.count("unavailable") - before) % READS == 1
    assert events.count("miss") == 0


@pytest.mark.failure("R8", "R9")
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_reads_return_the_default_while_redis_fails_and_the_refreshed_value_afterwards(
    world_on_redis: World, make_reader: MakeReader, proxies: Proxies, events: EventRecorder, fault: str
) -> None:
    world = world_on_redis
    stale = world.stale()
    reader = with_open_connections(impatient(make_reader, world), world)
    FAULTS[fault](proxies.before(world.cache_server.url()))
    for _ in range(FAILURES_THAT_OPEN_IT + 1):
        assert reader.get(QUERY, stale, default="fallback") == "fallback"

    proxies.before(world.cache_server.url()).passes()
    # The breaker's pause is still short: 0.25 s, doubled by each failed probe.
    promptly(lambda: was_tried(answer_of(reader.get, QUERY, stale)), "it is tried again", 1.0)
    eventually(lambda: reader.get(QUERY, stale, default="fallback") != "fallback", "it answers again")
    eventually(lambda: is_fresh(reader, stale), "it is refreshed")
    eventually(lambda: answer_of(reader.refresh, QUERY, stale).value is RefreshState.TRIGGERED, "and on request, too")


@pytest.mark.failure("R7")
@pytest.mark.alone
def test_a_slow_redis_within_the_timeout_costs_one_round_trip_per_hit(
    world_on_redis: World, make_reader: MakeReader, proxies: Proxies
) -> None:
    world = world_on_redis
    round_trip_seconds = 1.2 * SLACK_SECONDS  # a second one would show
    fresh, stale = world.fresh(), world.stale()
    reader = with_open_connections(make_reader(world, redis_timeout_seconds=10 * round_trip_seconds), world)
    proxies.before(world.cache_server.url()).slows(round_trip_seconds)
    hits = [answer_of(reader.get_entry, QUERY, fresh), answer_of(reader.get_entry, QUERY, stale)]
    assert [hit.value.state for hit in hits] == [EntryState.FRESH, EntryState.STALE]
    for hit in hits:
        hit.took.at_most(round_trip_seconds)  # no second one, for claim or clock
    miss = answer_of(reader.get_entry, QUERY, world.unknown())
    assert miss.value.state is EntryState.MISS
    eventually(lambda: reader.get_entry(QUERY, stale).state is EntryState.FRESH, "it is refreshed all the same")


@pytest.mark.failure("R12")
def test_a_command_whose_reply_is_cut_off_is_retried(
    world_on_redis: World, make_reader: MakeReader, proxies: Proxies, events: EventRecorder
) -> None:
    world = world_on_redis
    fresh, manual = world.fresh(), world.unknown()
    reader = with_open_connections(make_reader(world), world)
    proxy = proxies.before(world.cache_server.url())
    accepted = proxy.accepted
    proxy.cuts_next_reply_after(40)  # in the entry's header
    assert reader.get_entry(QUERY, fresh).state is EntryState.FRESH
    assert proxy.accepted > accepted
    assert reader.refresh(QUERY, fresh) is RefreshState.TRIGGERED  # its scripts are known to Redis by now
    proxy.cuts_next_reply_after(1)  # the claim is made, its reply is lost: the retry is the same claim
    assert reader.refresh(QUERY, manual) is RefreshState.TRIGGERED
    assert events.count("unavailable") == 0
