"""The cache's master becomes a read-only replica of another one, under load: behind one address, and with Sentinel."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from refresher.embedded import ArcadeDbServer, RedisServer
from tests.acceptance.worker_faults.conftest import WITHIN_QUEUE_TTL_SECONDS, World, make_world, replica_of
from tests.acceptance.worker_faults.traffic import Traffic
from tests.servers.redis_sentinels import Sentinels
from tests.support.history import Happened

BREAKER_SECONDS = 5.0  # the longest pause of the readers' breaker
WORKER_PAUSE_SECONDS = 5.0  # after it, a worker that can't reach Redis gets its re-sent message
WITHIN_SECONDS = BREAKER_SECONDS + WORKER_PAUSE_SECONDS + WITHIN_QUEUE_TTL_SECONDS


@pytest.fixture
def make(
    stack: ExitStack, redis_server: RedisServer, arcadedb: ArcadeDbServer, tmp_path: Path
) -> Callable[[RedisServer], World]:
    """Make a world of the cache's first master."""

    def made(master: RedisServer) -> World:
        world = make_world(stack, master, redis_server, arcadedb, tmp_path)
        world.begin()
        return world

    return made


@pytest.mark.failure("W34")
def test_keys_are_fresh_again_after_a_sentinel_failover_under_load(
    make: Callable[[RedisServer], World], stack: ExitStack
) -> None:
    sentinels = Sentinels(stack)
    world = make(sentinels.master)
    world.uses(sentinels.url())
    with Traffic(world, replicas=1) as traffic:
        traffic.goes_on_for(10)
        new = sentinels.kill_master()
        world.cache = stack.enter_context(sentinels.client(new))
        traffic.goes_on_for(4)  # each waits for a replica that is no more
    assert set(traffic.errors) <= {"CacheUnavailable"}
    world.verify(within_seconds=WITHIN_SECONDS)


@pytest.mark.failure("W34")
def test_keys_are_fresh_again_after_a_failover_behind_one_address_under_load(
    make: Callable[[RedisServer], World], stack: ExitStack
) -> None:
    old = stack.enter_context(RedisServer.start())
    new = replica_of(stack, old)
    demoted, promoted = (stack.enter_context(redis.Redis.from_url(server.url())) for server in (old, new))
    world = make(old)
    with Traffic(world, replicas=1) as traffic:
        traffic.goes_on_for(10)
        promoted.replicaof("NO", "ONE")
        demoted.replicaof(new.host, str(new.port))
        world.history.note(Happened.ROLLED_BACK)
        # Connections to the old master stay open: it serves reads, and rejects every step.
        world.cache_proxy.leads_to(new.url())
        world.cache = promoted
        traffic.goes_on_for(20)
    assert set(traffic.errors) <= {"CacheUnavailable"}
    world.verify(within_seconds=WITHIN_SECONDS)
