"""The publisher's batches on a real Redis: a round trip for the claims, one for the messages, one outcome for each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import redis

from api_client import CacheUnavailable, RefreshReason
from api_client.config.broker import refresh_queue
from api_client.protocol import lease as steps
from api_client.protocol.messages import RefreshItem
from api_client.threads import Waker
from api_client.transport.scripts import LeaseStore
from api_client.trigger import publisher
from api_client.trigger.backlog import Backlog, Trigger, TriggerDropped
from api_client.trigger.broker import CeleryBroker
from refresher.embedded import RedisServer
from tests.servers.restarts import restart
from tests.support.lease_world import World
from tests.support.publisher_harness import NAMESPACE, Ended, PublisherHarness, ScriptedBroker, held, key
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

pytestmark = pytest.mark.usefixtures("patient_publishers")


@pytest.fixture
def celery_bench(clean_redis: RedisServer) -> Iterator[PublisherHarness]:
    made = PublisherHarness(clean_redis, CeleryBroker(clean_redis.url(1), NAMESPACE))
    yield made
    made.close()


def publishers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "cache-publisher"}


def failing(*numbers: int) -> Callable[[RefreshItem], Exception | None]:
    return lambda item: OSError("no") if item.decoded_params["n"] in numbers else None


def test_a_batch_takes_a_few_round_trips_and_one_message_per_item(
    celery_bench: PublisherHarness, clean_redis: RedisServer
) -> None:
    celery_bench.handle(celery_bench.trigger(1_000), celery_bench.trigger(1_001))  # scripts are loaded, queues declared
    with redis.Redis.from_url(clean_redis.url(1)) as control:
        control.delete(refresh_queue(NAMESPACE))
        before = control.info("stats")["total_reads_processed"]
        assert celery_bench.handle(*(celery_bench.trigger(n) for n in range(64))) == [True] * 64
        # How often the server read from a socket: one pipeline may take some reads, 128 commands alone take 128.
        assert control.info("stats")["total_reads_processed"] - before < 64
        assert control.llen(refresh_queue(NAMESPACE)) == 64
    assert celery_bench.events.recorded[2:] == [("triggered", "stale")] * 64
    assert all(celery_bench.claimed(n) for n in range(64))


def test_publishing_that_outlives_close_leaves_no_connection(
    celery_bench: PublisherHarness, clean_redis: RedisServer
) -> None:
    held, go, published = threading.Event(), threading.Event(), threading.Event()
    others = publishers()

    def publish_late() -> None:
        held.set()
        assert go.wait(MAX_WAIT_SECONDS)
        assert celery_bench.broker.publish_each([[RefreshItem(query="q", params="{}")]], has_waiter=False) == [None]
        published.set()

    with redis.Redis.from_url(clean_redis.url(1)) as control:
        before = len(control.client_list())
        celery_bench.publisher.run_in_background(publish_late)
        assert held.wait(MAX_WAIT_SECONDS)
        celery_bench.publisher.close(timeout_seconds=0.0)
        go.set()
        assert published.wait(MAX_WAIT_SECONDS)
        eventually(lambda: len(control.client_list()) <= before, "the late connection is closed")
        eventually(lambda: publishers() <= others, "its thread has ended")


def test_a_flush_waits_for_a_trigger_that_came_when_the_publisher_had_seen_nothing_left(
    clean_redis: RedisServer, script: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    saw_nothing, flushes = threading.Event(), threading.Event()
    published: list[int] = []

    class HeldBacklog(Backlog):
        def __len__(self) -> int:
            left = super().__len__()
            if is_publisher() and not saw_nothing.is_set():
                saw_nothing.set()
                assert flushes.wait(MAX_WAIT_SECONDS)
            return left

    class FlushWaker(Waker):
        def wait(self, timeout_seconds: float | None = None) -> bool:
            if not is_publisher():
                flushes.set()
            return super().wait(timeout_seconds)

        def wake(self) -> None:
            if is_publisher():
                published.append(len(script.messages))
            super().wake()

    def is_publisher() -> bool:
        return threading.current_thread().name == "cache-publisher"

    monkeypatch.setattr(publisher, "Backlog", HeldBacklog)
    monkeypatch.setattr(publisher, "Waker", FlushWaker)
    with closing(PublisherHarness(clean_redis, script)) as bench:
        bench.publisher.run_in_background(lambda: None)
        assert saw_nothing.wait(MAX_WAIT_SECONDS)
        assert bench.publisher.submit(bench.trigger(1))
        assert bench.publisher.flush(MAX_WAIT_SECONDS)
        assert published == [1]


@pytest.mark.parametrize("is_late", [False, True])
def test_a_flush_ends_when_another_thread_has_closed_the_publisher(
    clean_redis: RedisServer, script: ScriptedBroker, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    flushes, is_closed = threading.Event(), threading.Event()

    class FlushWaker(Waker):
        def __init__(self) -> None:
            super().__init__()
            if is_late and threading.current_thread().name.startswith("flushing"):
                flushes.set()
                assert is_closed.wait(MAX_WAIT_SECONDS)

        def wait(self, timeout_seconds: float | None = None) -> bool:
            if threading.current_thread().name.startswith("flushing"):
                flushes.set()
            return super().wait(timeout_seconds)

    with closing(PublisherHarness(clean_redis, script)) as bench, ThreadPoolExecutor(1, "flushing") as pool:
        with held(bench.publisher):
            bench.publisher.submit(bench.trigger(1))
            monkeypatch.setattr(publisher, "Waker", FlushWaker)
            flushed = pool.submit(bench.publisher.flush, 2 * MAX_WAIT_SECONDS)
            assert flushes.wait(MAX_WAIT_SECONDS)
            bench.publisher.close(timeout_seconds=0.0)
            is_closed.set()
        assert flushed.result(MAX_WAIT_SECONDS)
        assert bench.events.recorded == [("dropped", "closed")]


def test_a_trigger_that_is_submitted_while_another_thread_closes_the_publisher_is_dropped(
    clean_redis: RedisServer, script: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ClosingBacklog(Backlog):
        def put(self, trigger: Trigger) -> bool:
            bench.publisher.close()
            return super().put(trigger)

    monkeypatch.setattr(publisher, "Backlog", ClosingBacklog)
    with closing(PublisherHarness(clean_redis, script)) as bench:
        ended = Ended()
        with held(bench.publisher):
            pass  # its thread runs
        bench.publisher.submit(bench.trigger(1, done=ended))
        error = ended.error()
        assert isinstance(error, TriggerDropped)
        assert error.why == "closed"
        assert bench.events.recorded == [("dropped", "closed")], "once"


def test_a_claim_that_redis_refuses_fails_alone(bench: PublisherHarness, script: ScriptedBroker) -> None:
    bench.client.set(key(2).record, "no hash")
    ends: list[Ended] = [Ended() for _ in range(3)]
    bench.handle(*(bench.trigger(n + 1, done=done) for n, done in enumerate(ends)))
    assert sorted(bench.events.recorded) == [("failed", "ResponseError"), *[("triggered", "stale")] * 2]
    assert [done.error() is None for done in ends] == [True, False, True]
    assert script.messages == [([1, 3], False)]


def test_a_message_that_fails_gives_its_own_claim_back_and_no_other(
    bench: PublisherHarness, script: ScriptedBroker
) -> None:
    script.error = failing(2)
    ends: list[Ended] = [Ended() for _ in range(3)]
    bench.handle(*(bench.trigger(n + 1, done=done) for n, done in enumerate(ends)))
    assert [bench.claimed(n) for n in (1, 2, 3)] == [True, False, True]
    assert sorted(bench.events.recorded) == [("failed", "OSError"), *[("triggered", "stale")] * 2]
    assert [done.error() is None for done in ends] == [True, False, True]


def test_an_unreachable_broker_opens_the_breaker_and_leaves_no_claim(
    bench: PublisherHarness, script: ScriptedBroker
) -> None:
    script.error = failing(*range(100))
    for round_ in range(3):
        bench.handle(*(bench.trigger(n) for n in range(round_ * 10, round_ * 10 + 10)))
    assert bench.events.recorded == [("failed", "OSError")] * 30
    bench.events.recorded.clear()
    ended = Ended()
    # A claim that its reader made, and that is not published.
    own = steps.claim(key(40), claim_id="own", seen_token=None, queue_ttl_seconds=60, retention_seconds=60)
    number = LeaseStore(bench.client).run(own).number
    bench.handle(bench.trigger(41), bench.trigger(40, claim_id="own", claim_number=number, has_waiter=True, done=ended))
    assert bench.events.recorded == [("dropped", "breaker")] * 2
    dropped = ended.error()
    assert isinstance(dropped, TriggerDropped)
    assert dropped.reason.startswith("OSError")
    assert not any(bench.claimed(n) for n in range(50))
    script.error = failing()
    bench.clock.now += 1.1  # the probe is a whole batch
    bench.handle(bench.trigger(41), bench.trigger(42))
    assert script.messages[-1] == ([41, 42], False)


def test_early_refreshes_beyond_the_queue_s_size_are_dropped_and_no_others(
    bench: PublisherHarness, script: ScriptedBroker
) -> None:
    script.length = 7
    early = [bench.trigger(n, RefreshReason.EARLY) for n in range(5)]
    for trigger in early:
        bench.suppressor.try_mark(trigger.key.entry, 0, 1.0)
    bench.handle(*early, bench.trigger(5), bench.trigger(6, RefreshReason.INVALIDATED))
    assert bench.events.recorded.count(("dropped", "backpressure")) == 2
    assert set(script.messages[0][0]) == {0, 1, 2, 5, 6}
    # What was published since counts, though the length is not queried again.
    bench.handle(bench.trigger(7, RefreshReason.EARLY))
    assert script.length_polls == 1
    assert bench.events.recorded[-1] == ("dropped", "backpressure")
    # Suppressed not for a second, but until the length is queried again.
    left = [bench.suppressor.left_seconds(trigger.key.entry) for trigger in early]
    assert [value > 0.5 for value in left] == [True, True, True, False, False]
    assert max(left[3:]) <= 0.25


def test_an_unknown_queue_length_drops_early_refreshes_only(bench: PublisherHarness, script: ScriptedBroker) -> None:
    script.length = OSError("no")
    bench.handle(bench.trigger(1, RefreshReason.EARLY), bench.trigger(2))
    assert sorted(bench.events.recorded) == [("failed", "OSError"), ("triggered", "stale")]


def test_triggers_with_waiters_go_first_and_to_their_own_queue(bench: PublisherHarness, script: ScriptedBroker) -> None:
    bench.handle(bench.trigger(1), bench.trigger(2, has_waiter=True), bench.trigger(3))
    assert script.messages == [([2], True), ([1, 3], False)]


def make_older(bench: PublisherHarness, n: int, seconds: int) -> None:
    for name in ("until", "claim_number", "published"):
        bench.client.hincrby(key(n).record, name, -seconds * 1_000_000)


def test_a_claim_queued_for_long_is_published_again_with_the_batch(
    bench: PublisherHarness, script: ScriptedBroker, republish_seconds: int
) -> None:
    bench.handle(bench.trigger(1), bench.trigger(2))
    make_older(bench, 1, republish_seconds)
    bench.handle(bench.trigger(1), bench.trigger(2), bench.trigger(3))
    assert script.messages[-1] == ([3, 1], False)
    assert bench.events.recorded[2:] == [
        ("deduplicated", "queued"), ("deduplicated", "queued"), ("triggered", "stale"), ("republished",),
    ]  # fmt: skip


@pytest.mark.parametrize("times", [0, 1, -1, 100])
def test_a_refused_claim_runs_the_republish_script_only_when_that_may_be_due(
    bench: PublisherHarness, republish_seconds: int, times: int
) -> None:
    bench.handle(bench.trigger(1))
    make_older(bench, 1, times * republish_seconds)
    bench.client.config_resetstat()
    bench.handle(bench.trigger(1))
    calls = bench.client.info("commandstats")["cmdstat_evalsha"]["calls"]
    # A hundred times as old: the claim is over, and this one is granted.
    assert (calls == 1) == (times in {0, 100})


def test_triggers_of_a_replaced_entry_are_suppressed_for_a_second(bench: PublisherHarness) -> None:
    world = World(bench.client, LeaseStore(bench.client), key(1))
    world.plant(9)
    bench.suppressor.try_mark(key(1).entry, 5, 0.1)  # nearly over: the reply to the claim prolongs it
    bench.handle(bench.trigger(1, seen_token=5, mark=5))
    assert bench.events.recorded == [("deduplicated", "already_refreshed")]
    assert bench.suppressor.left_seconds(key(1).entry) > 0.5
    assert not bench.suppressor.try_mark(key(1).entry, 5, 1.0), "the old entry, read late"
    assert bench.suppressor.try_mark(key(1).entry, 9, 1.0), "the new one, at once"


def test_an_invalidation_triggers_at_once_after_a_refused_claim(bench: PublisherHarness) -> None:
    world = World(bench.client, LeaseStore(bench.client), key(1))
    world.plant(9)
    world.fail(world.acquire(number=10).token)
    assert bench.suppressor.try_mark(key(1).entry, 9, 1.0)
    bench.handle(bench.trigger(1, seen_token=9, mark=9))
    assert bench.events.recorded == [("deduplicated", "cooling")]
    generation = world.invalidate()  # the entry keeps its token, and cooling ends
    assert bench.suppressor.try_mark(key(1).entry, generation, 1.0)
    bench.handle(bench.trigger(1, seen_token=9, mark=generation))
    assert world.state() == "queued"
    assert not bench.suppressor.try_mark(key(1).entry, generation, 1.0)


def test_a_full_backlog_accepts_some_triggers_and_reports_which(
    clean_redis: RedisServer, script: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api_client.trigger.publisher.BACKLOG", 2)
    bench = PublisherHarness(clean_redis, script)
    assert bench.handle(*(bench.trigger(n) for n in range(3))) == [True, True, False]
    assert bench.events.recorded.count(("dropped", "backlog")) == 1
    bench.close()
    assert bench.publisher.submit_all([bench.trigger(4)]) == [False]
    assert bench.publisher.submit_all([]) == []


def test_an_unreachable_redis_fails_all_triggers_and_the_publisher_thread_lives_on(
    own_redis: RedisServer, script: ScriptedBroker
) -> None:
    bench = PublisherHarness(own_redis, script)
    bench.handle(bench.trigger(0))
    own_redis.kill()
    ends: list[Ended] = [Ended() for _ in range(3)]
    bench.handle(*(bench.trigger(n + 1, done=done) for n, done in enumerate(ends)))
    assert all(isinstance(done.error(), CacheUnavailable) for done in ends)
    assert bench.events.recorded[1:] == [("failed", "ConnectionError")] * 3
    restart(own_redis, keep_data=False)
    bench.handle(bench.trigger(1), bench.trigger(2))
    assert bench.events.recorded[4:] == [("triggered", "stale")] * 2
    bench.close()
