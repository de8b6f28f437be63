"""The cache's Redis restarts, forgets, is full, evicts and loses connections, while readers and a writer go on.

`make test-long` adds one that loses its replies, which under load is much like one that is silent.
"""

from __future__ import annotations

import pytest

from tests.acceptance.worker_faults.conftest import (
    STEADY_CACHE,
    WITHIN_LEASE_SECONDS,
    WITHIN_QUEUE_TTL_SECONDS,
    World,
)
from tests.acceptance.worker_faults.traffic import Traffic
from tests.servers.restarts import restart
from tests.support.history import Happened
from tests.support.redis_memory import full, limited

BREAKER_SECONDS = 5.0  # the longest pause of the breaker before Redis
WORKER_PAUSE_SECONDS = 5.0  # after it, a worker that can't reach Redis gets its re-sent message


@pytest.mark.failure("W27", "W28")
@pytest.mark.parametrize("keep_data", [True, False], ids=["with_data", "empty"])
def test_keys_are_fresh_again_after_a_redis_restart_under_load(world: World, keep_data: bool) -> None:
    with Traffic(world) as traffic:
        traffic.goes_on_for(5)
        world.cache_server.kill()
        if not keep_data:
            world.history.note(Happened.EMPTIED)
        traffic.goes_on_for(3)
        restart(world.cache_server, keep_data=keep_data)
        traffic.goes_on_for(5)
    world.verify(within_seconds=BREAKER_SECONDS + WITHIN_QUEUE_TTL_SECONDS)


@pytest.mark.failure("W29")
def test_flushing_the_scripts_of_redis_under_load_causes_no_error(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world, "client", world.parts.client(**STEADY_CACHE))
    with Traffic(world) as traffic:
        for _ in range(3):
            traffic.goes_on_for(4)
            world.cache.script_flush()
    assert traffic.errors.total() == 0
    world.verify(within_seconds=WITHIN_LEASE_SECONDS)


@pytest.mark.failure("W30")
def test_keys_are_fresh_again_after_redis_was_full_without_eviction(world: World) -> None:
    with Traffic(world) as traffic:
        traffic.goes_on_for(5)
        with full(world.cache):
            traffic.goes_on_for(15)
        traffic.goes_on_for(5)
    assert set(traffic.errors) <= {"CacheUnavailable"}
    world.verify(within_seconds=WORKER_PAUSE_SECONDS + WITHIN_QUEUE_TTL_SECONDS)


@pytest.mark.failure("W31")
def test_keys_are_fresh_again_after_redis_evicted_records_and_entries(world: World) -> None:
    with Traffic(world) as traffic:
        traffic.goes_on_for(5)
        world.history.note(Happened.RECORDS_EVICTED)
        with limited(world.cache, world.cache.info("memory")["used_memory"] + 2_000_000, "allkeys-lru"):
            for number in range(40):
                world.cache.set(f"filler-{number}", bytes(200_000), ex=5)
                traffic.goes_on_for(1)
        evicted = world.cache.info("stats")["evicted_keys"]
        world.history.note(Happened.EVICTION_ENDED)
        traffic.goes_on_for(5)
    assert evicted > 0
    world.verify(within_seconds=WITHIN_QUEUE_TTL_SECONDS)


@pytest.mark.failure("W32")
@pytest.mark.parametrize("fault", ["cuts", "goes_half_open"])
def test_keys_are_fresh_again_after_redis_connections_were_lost_under_load(world: World, fault: str) -> None:
    with Traffic(world) as traffic:
        for _ in range(3):
            traffic.goes_on_for(4)
            getattr(world.cache_proxy, fault)()
    world.verify(within_seconds=BREAKER_SECONDS + WORKER_PAUSE_SECONDS + WITHIN_QUEUE_TTL_SECONDS)


@pytest.mark.failure("W33")
@pytest.mark.parametrize("fault", ["hangs", pytest.param("drops_replies", marks=pytest.mark.long)])
def test_keys_are_fresh_again_after_redis_was_silent_for_a_while(world: World, fault: str) -> None:
    with Traffic(world) as traffic:
        traffic.goes_on_for(5)
        getattr(world.cache_proxy, fault)()
        traffic.goes_on_for(2)
        world.cache_proxy.passes()
        traffic.goes_on_for(5)
    world.verify(within_seconds=BREAKER_SECONDS + WORKER_PAUSE_SECONDS + WITHIN_QUEUE_TTL_SECONDS)
