"""Batched publishing on a real Redis: triggers of queries that workers load in batches."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from api_client import RefreshReason
from api_client.protocol.keys import MAX_VERSION, make_key, versions_key
from api_client.protocol.live_versions import batched_versions
from api_client.protocol.messages import MAX_BATCH
from api_client.trigger.backlog import Trigger
from api_client.trigger.batches import HOLD_SECONDS, LOOKED_UP_SECONDS
from api_client.trigger.claim_and_publish import BatchPublisher
from tests.support.internals import publication_of
from tests.support.publisher_harness import NAMESPACE, Ended, PublisherHarness, ScriptedBroker, register_batched_query

# On a busy machine the publisher may take longer than HOLD_SECONDS from one trigger to the next.
pytestmark = pytest.mark.usefixtures("no_hold_ends")


def hold_three(bench: PublisherHarness) -> BatchPublisher:
    """Let the publisher hold triggers 0 to 2, as if more followed."""
    register_batched_query(bench.client)
    publication = publication_of(bench.publisher)
    publication.handle([bench.trigger(n) for n in range(3)], more_follow=True)
    return publication


def test_triggers_of_a_batched_query_are_one_message(bench: PublisherHarness, script: ScriptedBroker) -> None:
    register_batched_query(bench.client)
    bench.handle(*(bench.trigger(n) for n in range(10)))
    assert script.sizes == [10]
    assert bench.events.recorded == [("triggered", "stale")] * 10


def test_triggers_of_a_version_that_is_not_batched_are_one_message_each(
    bench: PublisherHarness, script: ScriptedBroker
) -> None:
    register_batched_query(bench.client, version=2)
    bench.handle(*(bench.trigger(n) for n in range(10)))
    assert script.sizes == [1] * 10


def test_a_single_trigger_is_sent_at_once_without_a_lookup(bench: PublisherHarness, script: ScriptedBroker) -> None:
    register_batched_query(bench.client)
    looked_up = bench.client.info("commandstats").get("cmdstat_zrange", {"calls": 0})["calls"]
    for n in range(3):
        bench.handle(bench.trigger(n))
    assert script.sizes == [1, 1, 1]
    assert bench.client.info("commandstats").get("cmdstat_zrange", {"calls": 0})["calls"] == looked_up


def test_a_message_has_at_most_a_hundred_items_and_waiters_get_separate_messages(
    bench: PublisherHarness, script: ScriptedBroker
) -> None:
    register_batched_query(bench.client)
    waiting = [bench.trigger(n, has_waiter=True) for n in range(1_000, 1_020)]
    bench.handle(*(bench.trigger(n) for n in range(250)), *waiting)
    assert sorted(script.sizes) == [20, 50, 100, 100]
    assert max(script.sizes) == MAX_BATCH
    with_waiter = [numbers for numbers, has_waiter in script.messages if has_waiter]
    assert [sorted(numbers) for numbers in with_waiter] == [list(range(1_000, 1_020))]


def test_triggers_are_held_no_longer_than_hold_seconds_while_more_follow(
    bench: PublisherHarness, script: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api_client.trigger.batches.HOLD_SECONDS", 0.0)
    register_batched_query(bench.client)
    bench.handle(*(bench.trigger(n) for n in range(32)))
    assert HOLD_SECONDS == 0.002
    assert script.sizes == [1] * 32


def test_large_params_make_smaller_messages(bench: PublisherHarness, script: ScriptedBroker) -> None:
    register_batched_query(bench.client)
    keys = [make_key(NAMESPACE, "q", {"n": n, "text": "x" * 15_000}, 1) for n in range(16)]
    bench.handle(*(Trigger(one, RefreshReason.STALE, seen_token=0) for one in keys))
    assert script.sizes == [8, 8]


def test_a_message_that_can_t_be_sent_gives_all_its_claims_back(
    bench: PublisherHarness, script: ScriptedBroker
) -> None:
    register_batched_query(bench.client)
    script.error = lambda _: OSError("no")
    ends: list[Ended] = [Ended() for _ in range(5)]
    bench.handle(*(bench.trigger(n, done=done) for n, done in enumerate(ends)))
    assert [type(done.error()) for done in ends] == [OSError] * 5
    assert not any(bench.claimed(n) for n in range(5))


def test_a_publisher_that_ends_releases_the_claims_of_held_triggers(
    bench: PublisherHarness, script: ScriptedBroker
) -> None:
    publication = hold_three(bench)
    assert [bench.claimed(n) for n in range(3)] == [True] * 3
    publication.give_back_held()
    assert not any(bench.claimed(n) for n in range(3))
    assert script.sizes == []


@pytest.mark.parametrize("spoil", [lambda r, name: r.set(name, "no set"), lambda r, name: r.zadd(name, {"x": 1e18})])
def test_triggers_are_sent_one_by_one_when_the_versions_can_t_be_read(
    bench: PublisherHarness, script: ScriptedBroker, spoil: Callable[..., object]
) -> None:
    spoil(bench.client, versions_key(NAMESPACE, "q"))
    bench.handle(*(bench.trigger(n) for n in range(3)))
    assert script.sizes == [1, 1, 1]


def test_a_newly_registered_batched_query_is_noticed_after_half_a_minute(
    bench: PublisherHarness, script: ScriptedBroker
) -> None:
    bench.handle(bench.trigger(0), bench.trigger(1))
    register_batched_query(bench.client)
    bench.handle(bench.trigger(2), bench.trigger(3))
    assert script.sizes == [1] * 4
    bench.clock.now += LOOKED_UP_SECONDS + 1
    bench.handle(bench.trigger(4), bench.trigger(5))
    assert script.sizes[4:] == [2]


def test_a_queue_s_length_is_counted_in_refreshes(bench: PublisherHarness, script: ScriptedBroker) -> None:
    register_batched_query(bench.client)
    for round_ in range(20):
        bench.handle(*(bench.trigger(100 * round_ + n) for n in range(10)))
    script.length = 20  # messages, of ten refreshes each
    bench.clock.now += 1.0
    bench.handle(bench.trigger(9_000, RefreshReason.EARLY), bench.trigger(9_001, RefreshReason.EARLY))
    assert bench.events.recorded[-2:] == [("dropped", "backpressure")] * 2


@pytest.mark.parametrize(
    ("members", "versions"),
    [
        ([b"1", b"batched:1", b"batched:65535"], {1, MAX_VERSION}),
        ([b"2", b"batched:0", b"batched:65536", b"batched:", b"batched:x", b"batched:-1"], set()),
    ],
)
def test_invalid_registrations_of_batched_versions_are_ignored(members: list[bytes], versions: set[int]) -> None:
    assert batched_versions(members) == versions


def test_a_forked_child_sends_nothing_that_its_parent_held(
    bench: PublisherHarness, script: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold_three(bench)
    with monkeypatch.context() as child:
        child.setattr("os.getpid", lambda: -1)  # as in a child, by a fork that ran no hook
        bench.handle(bench.trigger(10), bench.trigger(11))
        bench.publisher.close()  # its thread is the child's
    assert script.messages == [([10, 11], False)]
    assert bench.claimed(0), "the parent publishes it"
