"""A queue slower than the interval of a republication, or than a claim: repeated reads do not make it grow.

Time passes in the lease records, and in the publisher's clock, not in the test.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import redis

from api_client.protocol import lease as steps
from api_client.protocol.keys import CacheKey
from api_client.protocol.messages import RefreshReason
from api_client.transport.scripts import LeaseStore
from api_client.trigger.backpressure import LENGTH_CACHED_SECONDS
from api_client.trigger.batches import LOOKED_UP_SECONDS
from tests.support.publisher_harness import (
    QUEUE_SIZE,
    Ended,
    PublisherHarness,
    ScriptedBroker,
    key,
    register_batched_query,
)

pytestmark = pytest.mark.usefixtures("patient_publishers")
REFUSED, HELD_BACK = ("deduplicated", "queued"), ("dropped", "repeat")


def let_pass(client: redis.Redis, seconds: float, *keys: CacheKey) -> None:
    """Make records older."""
    for each in keys:
        for name in ("since", "until", "claim_number", "claimed_at", "published"):
            client.hincrby(each.record, name, -int(seconds * 1_000_000))


@pytest.mark.promise("Refreshing", "Republished refreshes stay within the queue's bound")
def test_republishing_stops_at_the_queue_s_bound_and_below_it_fills_the_room_left(
    bench: PublisherHarness, script: ScriptedBroker
) -> None:
    keys = [key(n) for n in range(5)]
    bench.handle(*(bench.trigger(n) for n in range(5)))
    assert script.length_polls == 0  # nothing has waited for long
    let_pass(bench.client, 6, *keys)
    script.length = QUEUE_SIZE
    ended = Ended()
    bench.handle(*(bench.trigger(n) for n in range(4)), bench.trigger(4, done=ended))
    assert len(script.messages) == 1
    assert bench.events.recorded[5:] == [REFUSED] * 5 + [HELD_BACK] * 5
    assert ended.error() is None
    assert bench.client.hget(key(0).record, "republished") == b"0"  # the next one does not come later for it

    script.length = QUEUE_SIZE - 2
    bench.clock.now += 0.3
    bench.handle(*(bench.trigger(n) for n in range(5)))
    assert script.messages[1:] == [([0, 1], False)]
    assert bench.events.recorded[15:] == [REFUSED] * 5 + [HELD_BACK] * 3 + [("republished",)] * 2


def test_republishing_for_waiters_is_limited_by_their_own_queue_only(
    bench: PublisherHarness, script: ScriptedBroker
) -> None:
    own = steps.claim(key(1), claim_id="own", seen_token=None, queue_ttl_seconds=60, retention_seconds=60)
    number = LeaseStore(bench.client).run(own).number
    again = bench.trigger(1, claim_id="another", claim_number=number, has_waiter=True, is_republish=True)
    script.length, script.misses = 10 * QUEUE_SIZE, QUEUE_SIZE - 1
    bench.handle(again)
    assert script.messages == [([1], True)]
    script.misses = QUEUE_SIZE
    bench.clock.now += 0.3
    bench.handle(again)
    # A claim that is published for the first time goes in any case.
    bench.handle(bench.trigger(1, claim_id="own", claim_number=number, has_waiter=True))
    assert script.messages == [([1], True)] * 2
    assert bench.events.recorded == [("republished",), HELD_BACK, ("triggered", "stale")]


def test_a_due_republication_fails_without_the_broker_and_stays_due(
    bench: PublisherHarness, script: ScriptedBroker
) -> None:
    bench.handle(bench.trigger(1))
    let_pass(bench.client, 6, key(1))
    script.length = OSError("no")
    bench.handle(bench.trigger(1))
    assert bench.events.recorded[1:] == [REFUSED, ("failed", "OSError")]
    script.length = 0
    bench.handle(bench.trigger(1))
    assert script.messages[1:] == [([1], False)]


@pytest.mark.parametrize(("waiting", "times"), [(QUEUE_SIZE, 1), (3 * QUEUE_SIZE + 5, 3), (99 * QUEUE_SIZE, 10)])
def test_a_claim_lasts_longer_in_proportion_to_the_queue(
    bench: PublisherHarness, script: ScriptedBroker, waiting: int, times: int
) -> None:
    bench.handle(bench.trigger(1))
    let_pass(bench.client, 2, key(1))
    script.length = waiting
    bench.handle(bench.trigger(1))  # queued for two seconds: the length is queried
    assert (len(script.messages), script.length_polls) == (1, 1)
    bench.handle(bench.trigger(2))
    since, until = (int(bench.client.hget(key(2).record, name) or 0) for name in ("since", "until"))
    assert until - since == times * 60_000_000


def test_a_queue_that_stays_long_drops_stale_refreshes_but_no_invalidated_ones(
    bench: PublisherHarness, script: ScriptedBroker
) -> None:
    script.length = QUEUE_SIZE + 1
    for _ in range(11):
        bench.clock.now += 1.0
        bench.handle(bench.trigger(0, reason=RefreshReason.EARLY))
    bench.handle(bench.trigger(1), bench.trigger(2, reason=RefreshReason.INVALIDATED))
    assert script.messages == [([2], False)]
    assert bench.events.recorded[11:] == [("dropped", "backpressure"), ("triggered", "invalidated")]
    assert not bench.client.exists(key(1).record)
    assert 0 < bench.suppressor.left_seconds(key(1).entry) <= LENGTH_CACHED_SECONDS  # then its next read tries again
    script.length = QUEUE_SIZE - 1
    bench.clock.now += LENGTH_CACHED_SECONDS
    bench.handle(bench.trigger(3), bench.trigger(1))
    assert script.messages[1:] == [([3], False)]


def test_in_an_overload_heavy_loads_are_dropped_unless_batched_or_invalidated(
    bench: PublisherHarness, script: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api_client.trigger.claim_and_publish.random", SimpleNamespace(random=lambda: 0.5))
    bench.handle(bench.trigger(0, run_seconds=100.0))  # no overload: nothing is weighed
    script.length = QUEUE_SIZE + 1
    for _ in range(11):
        bench.clock.now += 1.0
        bench.handle(bench.trigger(0, reason=RefreshReason.EARLY))
    script.length = 0
    bench.clock.now += LENGTH_CACHED_SECONDS
    light = [bench.trigger(n, run_seconds=0.1) for n in (1, 2)]
    bench.handle(*light, bench.trigger(3, run_seconds=10.0), bench.trigger(4), bench.trigger(5, run_seconds=0.15))
    bench.handle(bench.trigger(6, run_seconds=10.0, reason=RefreshReason.INVALIDATED))
    assert script.messages[1:] == [([1, 2, 4, 5], False), ([6], False)]
    assert not bench.client.exists(key(3).record)
    register_batched_query(bench.client)
    bench.clock.now += LOOKED_UP_SECONDS
    bench.handle(bench.trigger(3, run_seconds=10.0))
    assert script.messages[3:] == [([3], False)]
