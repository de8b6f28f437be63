"""What a reader returns while the cache's Redis restarts, fails over or is full; and that it recovers by itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import pytest
import redis

from api_client import CacheUnavailable, EntryState, RefreshState
from refresher.embedded import ArcadeDbServer, RedisServer
from tests.acceptance.conftest import System
from tests.acceptance.faults.conftest import (
    QUERY,
    READER_SILENCE_SECONDS,
    MakeReader,
    Proxies,
    World,
    triggered_in_time,
    with_open_connections,
)
from tests.servers.restarts import restart
from tests.support.any_reader import answer_of
from tests.support.event_recorder import EventRecorder
from tests.support.fault_proxy import FaultProxy
from tests.support.requirements import each_with_each
from tests.support.timing import promptly
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

pytestmark = pytest.mark.usefixtures("published_once")

BREAKER_PAUSE_SECONDS = 1.0  # of the breaker before Redis, after a few failed probes


@pytest.mark.failure("R13", "R14")
@each_with_each("keep_data", (True, False), "make_reader", ("sync", "async"), ["make_reader"])
def test_after_a_redis_restart_a_read_is_a_hit_or_one_load(
    make_own_world: Callable[[], World], make_reader: MakeReader, events: EventRecorder, keep_data: bool
) -> None:
    world = make_own_world()
    fresh, stale = world.fresh(), world.stale()
    reader = with_open_connections(make_reader(world), world)
    world.parts.cache.save()
    world.cache_server.kill()
    assert isinstance(answer_of(reader.get, QUERY, fresh).error, CacheUnavailable)
    assert reader.get(QUERY, fresh, default="fallback") == "fallback"
    restart(world.cache_server, keep_data=keep_data)
    # A load takes what it takes on a busy machine, a hit does not.
    in_time = partial(promptly, promised_seconds=BREAKER_PAUSE_SECONDS) if keep_data else eventually
    entry = in_time(lambda: answer_of(reader.get_entry, QUERY, fresh).value, "it is read")
    assert (entry.state, entry.value["load"]) == ((EntryState.FRESH, 1) if keep_data else (EntryState.MISS, 2))
    eventually(lambda: reader.get_entry(QUERY, stale).state is EntryState.FRESH, "and the worker goes on as well")
    assert world.parts.loads(fresh["key"]) == entry.value["load"]
    assert events.count("miss") == (0 if keep_data else 2)


@pytest.mark.failure("R16")
def test_a_full_redis_serves_its_entries_and_rejects_claims(
    world_on_redis: World, make_reader: MakeReader, events: EventRecorder
) -> None:
    world = world_on_redis
    fresh, stale = world.fresh(), world.stale()
    reader = with_open_connections(make_reader(world), world)
    with world.full(world.cache_server):
        for _ in range(6):  # an error reply is a reply: the breaker stays closed
            assert isinstance(answer_of(reader.refresh, QUERY, world.unknown()).error, CacheUnavailable)
        assert reader.get_entry(QUERY, fresh).state is EntryState.FRESH
        hit = reader.get_entry(QUERY, stale)
        assert (hit.state, hit.refresh) == (EntryState.STALE, RefreshState.TRIGGERED)
        assert reader.flush(MAX_WAIT_SECONDS)
        assert events.count("failed") == 1
        assert isinstance(answer_of(reader.get, QUERY, world.unknown()).error, CacheUnavailable)
        assert reader.get(QUERY, world.unknown(), default="fallback") == "fallback"
        assert isinstance(answer_of(reader.invalidate, QUERY, fresh).error, CacheUnavailable)
        assert reader.get_entry(QUERY, fresh).state is EntryState.FRESH  # as it said: not invalidated
        assert reader.invalidate(QUERY, fresh, hard=True).generation > 0  # it frees memory, so it is done
        assert world.healthy.get(QUERY, fresh, default="gone") == "gone"
    triggered_in_time(reader, events, stale, READER_SILENCE_SECONDS)


@dataclass(frozen=True)
class Pair:
    """A master and its replica under one address: the proxies of reader and worker lead to the current master."""

    world: World
    old: RedisServer
    new: RedisServer
    worker_proxy: FaultProxy

    def fail_over(self, reader_proxy: FaultProxy) -> None:
        """Promote the replica and demote the master. The reader's connections stay open; new ones lead to the new."""
        with redis.Redis.from_url(self.new.url()) as promoted, redis.Redis.from_url(self.old.url()) as demoted:
            demoted.set("marker", "the last write")
            assert demoted.wait(1, int(1_000 * MAX_WAIT_SECONDS)) == 1
            promoted.replicaof("NO", "ONE")
            demoted.replicaof(self.new.host, str(self.new.port))
            eventually(lambda: demoted.info("replication")["master_link_status"] == "up", "it is a replica now")
        for proxy in (reader_proxy, self.worker_proxy):
            proxy.leads_to(self.new.url())
        self.worker_proxy.cuts()


@pytest.fixture
def pair(
    stack: ExitStack,
    redis_server: RedisServer,
    arcadedb: ArcadeDbServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Pair:
    old, new, broker = (stack.enter_context(RedisServer.start()) for _ in range(3))
    with redis.Redis.from_url(old.url()) as master, redis.Redis.from_url(new.url()) as replica:
        # One password, as under one address.
        replica.config_set("masterauth", old.password)
        replica.config_set("requirepass", old.password)
        new.password = old.password
        master.config_set("masterauth", old.password)
    with redis.Redis.from_url(new.url()) as replica:
        replica.replicaof(old.host, str(old.port))
        eventually(lambda: replica.info("replication")["master_link_status"] == "up", "it replicates")
    worker_proxy = stack.enter_context(FaultProxy.before(old.url()))
    system = System(stack, old, redis_server, arcadedb, tmp_path_factory.mktemp("pair"))
    system.env |= {"CACHE_REDIS_URL": worker_proxy.url(old.url(0))}
    world = World(system, old, broker)
    world.start_worker()
    return Pair(world, old, new, worker_proxy)


@pytest.mark.failure("R15")
def test_after_a_failover_hits_go_on_and_the_next_refresh_is_claimed_at_the_new_master(
    pair: Pair, make_reader: MakeReader, proxies: Proxies, events: EventRecorder
) -> None:
    world = pair.world
    stale = world.stale()
    reader = with_open_connections(make_reader(world), world)
    pair.fail_over(proxies.before(pair.old.url()))
    # Nothing but hits, on an open connection to the old master: it serves them, and rejects each claim. The next one
    # reaches the new master.
    triggered_in_time(reader, events, stale, 2 * READER_SILENCE_SECONDS)
    assert events.count("unavailable") == events.count("miss") == 0
