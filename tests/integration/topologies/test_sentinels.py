"""A Redis behind Sentinels: reads, steps, notifications and the in-process tier follow the master."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from typing import Any

import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from api_client import AsyncCacheClient, CacheUnavailable, EntryState, ReaderSettings
from api_client.protocol.keys import make_key
from api_client.protocol.lease import CommitStatus
from api_client.transport import sentinel as sentinel_module
from api_client.transport.redis_py import connect
from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer
from tests.integration.topologies.conftest import NAMESPACE, TIMEOUT_SECONDS, MakeReader, done
from tests.servers.redis_sentinels import Sentinels
from tests.servers.restarts import restart
from tests.support.any_reader import answer_of, client_of, local_cache_of
from tests.support.cancelling import CancelledAt, CancelPoint
from tests.support.fake_worker import WorkedKey
from tests.support.internals import link_of
from tests.support.read_load import ReadLoad
from tests.support.requirements import each_with_each
from tests.support.timing import Measured
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

FAILOVERS: dict[str, Callable[[Sentinels], RedisServer]] = {
    "ordered": Sentinels.fail_over,
    "killed": Sentinels.kill_master,
}


EACH_FAILOVER = each_with_each("fail_over", ("ordered", "killed"), "kind", ("async", "sync"))


@pytest.fixture
def fail_over(request: pytest.FixtureRequest) -> Callable[[Sentinels], RedisServer]:
    return FAILOVERS[request.param]


@pytest.fixture
def control(sentinels: Sentinels) -> Iterator[redis.Redis]:
    """The master, whichever it is; tried again for long: a busy machine's Sentinels may take it for down."""
    patient = Retry(ConstantBackoff(0.2), 150, supported_errors=(redis.ConnectionError, redis.TimeoutError))
    with connect(sentinels.url(), timeout_seconds=MAX_WAIT_SECONDS, retry=patient) as client:
        yield client


NewKey = Callable[..., WorkedKey]


@pytest.fixture
def new_key(control: redis.Redis) -> NewKey:
    """Name a key whose worker the test is."""
    return lambda n=0: WorkedKey(control, LeaseStore(control), make_key(NAMESPACE, "q", {"n": n}, 1))


def replicated(control: redis.Redis) -> None:
    """Wait until the replica has what the last connection has written."""
    control.set("marker", "now")
    assert control.wait(1, int(MAX_WAIT_SECONDS * 1000)) == 1


def test_the_url_s_database_is_used_on_the_master(make_reader: MakeReader, sentinels: Sentinels) -> None:
    reader = make_reader(sentinels.url(db=3))
    with sentinels.client(sentinels.master, db=3) as there:
        key = WorkedKey(there, LeaseStore(there), make_key(NAMESPACE, "q", {}, 1))
        key.store_value("in 3")
        assert reader.get("q", {}) == "in 3"


@pytest.mark.promise("Reading", "After a failover by Sentinels, reads continue at the new master")
@EACH_FAILOVER
def test_after_a_failover_reads_and_steps_go_on_at_the_new_master(
    make_reader: MakeReader, sentinels: Sentinels, new_key: NewKey, control: redis.Redis, fail_over: Any
) -> None:
    reader, keys = make_reader(sentinels.url()), [new_key(n) for n in range(5)]
    for key in keys:
        key.store_value("old")
    replicated(control)
    with ReadLoad([reader] * 4, [("q", {"n": n}) for n in range(5)]) as load:
        began = time.monotonic()
        fail_over(sentinels)
        load.reads_well("after the failover")
        healed = time.monotonic()
        for n, key in enumerate(keys):
            generation = eventually(
                lambda n=n: done(lambda: reader.invalidate("q", {"n": n}).generation), "invalidated"
            )
            key.load("new")
            entry = reader.get_entry("q", {"n": n}, min_generation=generation, timeout=MAX_WAIT_SECONDS)
            assert (entry.value, entry.state) == ("new", EntryState.FRESH)
        eventually(lambda: [answer.value for _, answer in load.answers[-20:]] == ["new"] * 20, "all see it")
    assert {type(answer.error).__name__ for _, answer in load.errors()} <= {"CacheUnavailable"}
    assert [at for at, _ in load.errors() if not began <= at <= healed] == []


def test_a_run_invalidated_at_the_new_master_stores_nothing(
    make_reader: MakeReader, sentinels: Sentinels, new_key: NewKey, control: redis.Redis
) -> None:
    reader, key = make_reader(sentinels.url()), new_key()
    assert key.claim().number
    token = key.begin()
    replicated(control)
    sentinels.kill_master()
    eventually(lambda: done(lambda: reader.invalidate("q", {"n": 0}, hard=True)), "it is invalidated")
    status = eventually(lambda: done(lambda: key.end(token, "stale")), "the commit is answered")
    assert status in {CommitStatus.INVALIDATED, CommitStatus.LOST}
    with sentinels.client(sentinels.master) as master:
        assert master.get(key.key.entry) is None
    assert key.claim(claim_id="another").number
    key.load("new")
    assert reader.get("q", {"n": 0}, timeout=MAX_WAIT_SECONDS) == "new"


def test_reads_and_steps_leave_a_running_master_that_the_sentinels_have_replaced(
    make_reader: MakeReader, sentinels: Sentinels, new_key: NewKey, control: redis.Redis
) -> None:
    reading, stepping, key = make_reader(sentinels.url()), make_reader(sentinels.url()), new_key()
    key.store_value("old")
    replicated(control)
    assert reading.get("q", {"n": 0}) == "old"
    assert stepping.invalidate("other", {}).generation
    link_of(client_of(reading)).sync_clock()  # as after ten seconds: it connects, and resolves the master
    old = sentinels.master
    with sentinels.client(sentinels.cut_off_master()) as new:
        there = WorkedKey(new, LeaseStore(new), key.key)
        there.store_value("new")
        # The old master keeps running as if nothing had happened, and gets no writes.
        assert old.is_running

        def read_after_ten_seconds() -> Any:
            link_of(client_of(reading)).sync_clock()
            return reading.get("q", {"n": 0})

        def is_invalidated_there() -> bool:
            generation = stepping.invalidate("q", {"n": 0}).generation
            return there.record().get("generation") == str(generation).encode()

        eventually(lambda: read_after_ten_seconds() == "new", "it reads from the new master")
        eventually(is_invalidated_there, "the step is done at the new master")


@pytest.mark.parametrize("kind", ["sync"])  # the local cache and its connection are the same for both
@pytest.mark.parametrize("fail_over", [*FAILOVERS.values(), Sentinels.cut_off_master])
def test_the_in_process_tier_is_emptied_and_tracks_the_new_master(
    make_reader: MakeReader, sentinels: Sentinels, new_key: NewKey, control: redis.Redis, fail_over: Any
) -> None:
    reader, key = make_reader(sentinels.url(), local_max_entries=100, local_max_age_seconds=600.0), new_key()
    tier = local_cache_of(reader)

    def kept() -> bool:
        reader.get("q", {"n": 0}, default=None)
        return key.key.entry in tier.entries

    key.store_value("old")
    replicated(control)
    eventually(kept, "it is kept")
    emptied: list[bool] = []
    bypass = tier.bypass

    def bypassed() -> None:
        bypass()
        emptied.append(tier.entries == {})

    tier.bypass = bypassed  # type: ignore[method-assign]
    new = fail_over(sentinels)
    eventually(lambda: emptied, "it is emptied")
    with sentinels.client(new) as master:
        eventually(lambda: tracks(master) and kept(), "it is on again, at the new master")
        WorkedKey(master, LeaseStore(master), key.key).store_value("new")
        # Only the message can do this within ten minutes.
        eventually(lambda: reader.get("q", {"n": 0}, default=None) == "new", "the invalidation is seen")
    assert all(emptied)


def tracks(master: redis.Redis) -> bool:
    """Whether a connection is open on which invalidations go out."""
    return any("t" in one["flags"] for one in master.client_list())


@EACH_FAILOVER
def test_a_wait_after_a_failover_is_notified_by_the_new_master(
    make_reader: MakeReader, sentinels: Sentinels, new_key: NewKey, pool: ThreadPoolExecutor, fail_over: Any
) -> None:
    reader, before, key = make_reader(sentinels.url()), new_key(1), new_key(2)
    first = pool.submit(reader.get, "q", {"n": 1}, timeout=MAX_WAIT_SECONDS)
    eventually(before.has_subscriber, "it listens")
    before.load("before")
    assert first.result(MAX_WAIT_SECONDS) == "before"
    new = fail_over(sentinels)

    def waits_at_the_new_master() -> bool:
        read = pool.submit(reader.get, "q", {"n": 2}, timeout=1.0, default=None)
        with sentinels.client(new) as master:
            listens = WorkedKey(master, LeaseStore(master), key.key).has_subscriber
            while not read.done():
                if listens():
                    return True
        return False

    eventually(waits_at_the_new_master, "the waiter is subscribed there")


@pytest.mark.alone
def test_silent_or_unreachable_sentinels_are_skipped(make_reader: MakeReader, stack: ExitStack) -> None:
    three = Sentinels(stack, sentinels=3)
    with connect(three.url(), timeout_seconds=MAX_WAIT_SECONDS) as control:
        WorkedKey(control, LeaseStore(control), make_key(NAMESPACE, "q", {"n": 0}, 1)).store_value("there")
        replicated(control)
    silent, gone, _ = three.sentinels
    gone.kill()
    os.kill(silent.pid, signal.SIGSTOP)
    reader = make_reader(three.url(), redis_timeout_seconds=6.0)
    try:
        with Measured() as took:
            value = reader.get("q", {"n": 0})
    finally:
        os.kill(silent.pid, signal.SIGCONT)
    assert value == "there"
    took.at_most(6.0)  # to find the master takes one timeout, however many are queried


def test_without_sentinels_a_connected_reader_goes_on_and_a_new_one_gets_an_error(
    make_reader: MakeReader, sentinels: Sentinels, new_key: NewKey
) -> None:
    new_key().store_value("there")
    connected = make_reader(sentinels.url())
    assert connected.get("q", {"n": 0}) == "there"
    sentinels.sentinels[0].kill()
    assert connected.get("q", {"n": 0}) == "there"
    assert connected.invalidate("q", {"n": 0}).generation
    other = make_reader(sentinels.url())
    with pytest.raises(CacheUnavailable, match="no Sentinel that answers knows a master 'the master'"):
        other.get("q", {"n": 0})
    restart(sentinels.sentinels[0], keep_data=True)
    eventually(lambda: answer_of(other.get, "q", {"n": 0}).value == "there", "it heals")


def test_a_sentinel_that_refuses_to_tell_the_master_is_skipped(make_reader: MakeReader, stack: ExitStack) -> None:
    two = Sentinels(stack, sentinels=2)
    refuse_to_tell(two.sentinels[0], two.sentinel_password)
    assert make_reader(two.url()).invalidate("q", {"n": 0}).generation


def test_writes_go_on_while_the_only_sentinel_refuses_to_tell_the_master(
    make_reader: MakeReader, sentinels: Sentinels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentinel_module, "POLL_SECONDS", 0.0)
    reader = make_reader(sentinels.url())
    before = reader.invalidate("q", {"n": 0}).generation
    refuse_to_tell(sentinels.sentinels[0], sentinels.sentinel_password)
    assert reader.invalidate("q", {"n": 0}).generation > before


def refuse_to_tell(server: RedisServer, password: str) -> None:
    with redis.Redis(host=server.host, port=server.port, password=password, protocol=2) as control:
        control.execute_command("ACL", "SETUSER", "default", "-sentinel")


def test_a_sentinel_that_refuses_the_password_is_treated_as_unavailable(
    make_reader: MakeReader, sentinels: Sentinels
) -> None:
    url = sentinels.url().replace(sentinels.sentinel_password, "wrong")
    with pytest.raises(CacheUnavailable, match=r"no Sentinel that answers .*; no answer: .*password"):
        make_reader(url).get("q", {"n": 0})


def test_a_step_cancelled_while_it_queries_the_sentinels_is_cancelled(
    sentinels: Sentinels, clean_redis: RedisServer
) -> None:
    settings = ReaderSettings(
        redis_url=sentinels.url(), broker_url=clean_redis.url(1), redis_timeout_seconds=TIMEOUT_SECONDS
    )

    async def is_cancelled(number: int, moment: CancelPoint) -> bool:
        client = AsyncCacheClient(settings)
        # It has a connection now, and the step checks whether that still leads to the master.
        await client.explain("q")
        step = CancelledAt(client.invalidate("q", version=1), number, moment)
        (end,) = await asyncio.gather(asyncio.create_task(step.run()), return_exceptions=True)
        assert isinstance(end, asyncio.CancelledError) == step.has_cancelled, (number, moment, end)
        assert (await client.invalidate("q")).generation
        await client.close()
        # A query that was begun ends by itself; a loop that ended before would leave a connection to a Sentinel.
        loop = asyncio.get_running_loop()
        await asyncio.to_thread(eventually, lambda: len(asyncio.all_tasks(loop)) == 1, "no task is left but this")
        return step.has_cancelled

    for moment in CancelPoint:
        awaits = next(number for number in count() if not asyncio.run(is_cancelled(number, moment)))
        assert awaits >= 2, moment
