"""The broker's master changes under load: behind Sentinels, and behind one address."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from refresher.embedded import ArcadeDbServer, RedisServer
from tests.acceptance.worker_faults.conftest import (
    REPUBLISH_SECONDS,
    SETTINGS,
    SLACK_SECONDS,
    STEADY_CACHE,
    WITHIN_BROKER_OUTAGE_SECONDS,
    WORKER_BACK_SECONDS,
    World,
    make_world,
    replica_of,
)
from tests.acceptance.worker_faults.traffic import Traffic
from tests.servers.redis_sentinels import Sentinels
from tests.support.timing import promptly


@pytest.fixture
def world(stack: ExitStack, redis_server: RedisServer, arcadedb: ArcadeDbServer, tmp_path: Path) -> World:
    cache = stack.enter_context(RedisServer.start())
    world = make_world(stack, cache, redis_server, arcadedb, tmp_path, SETTINGS | STEADY_CACHE)
    world.begin()
    return world


@pytest.mark.failure("W37")
@pytest.mark.parametrize("fault", ["fail_over", "kill_master", "cut_off_master"])
def test_keys_are_fresh_again_after_the_broker_failed_over_under_load(
    world: World, stack: ExitStack, fault: str
) -> None:
    sentinels = Sentinels(stack)
    world.parts.env["CACHE_BROKER_URL"] = sentinels.url(1)
    world.client = world.parts.client()
    with Traffic(world) as traffic:
        traffic.goes_on_for(5)
        world.broker = stack.enter_context(sentinels.client(getattr(sentinels, fault)(), db=1))
        refreshes_go_on(world)
    assert traffic.errors.total() == 0  # no read and no invalidation has failed
    world.verify(within_seconds=WITHIN_BROKER_OUTAGE_SECONDS)


@pytest.mark.failure("W37")
def test_keys_are_fresh_again_after_a_demotion_of_the_broker_behind_one_address_under_load(
    world: World, stack: ExitStack
) -> None:
    old = world.broker_server
    new = replica_of(stack, old)
    demoted, promoted = (stack.enter_context(redis.Redis.from_url(server.url(1))) for server in (old, new))
    with Traffic(world) as traffic:
        traffic.goes_on_for(5)
        promoted.replicaof("NO", "ONE")
        demoted.replicaof(new.host, str(new.port))
        # Connections to the old master stay open: it rejects every message.
        world.broker_proxy.leads_to(new.url())
        world.broker = promoted
        refreshes_go_on(world)
    assert traffic.errors.total() == 0
    world.verify(within_seconds=WITHIN_BROKER_OUTAGE_SECONDS)


def refreshes_go_on(world: World) -> None:
    """Wait until a refresh has gone through the broker's new master."""
    before = world.count_of("committed")
    promised_seconds = WORKER_BACK_SECONDS + REPUBLISH_SECONDS + SLACK_SECONDS
    promptly(lambda: world.count_of("committed") > before + 2, "refreshes are committed", promised_seconds)
