"""The broker hangs, is cut off, slow, gone, full, replaced by its replica, and back: the worker recovers by itself.

`make test-long` adds a broker that loses its answers, which to a worker is much like one that hangs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
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
from tests.servers.restarts import restart
from tests.support.recording_proxy import RecordingProxy
from tests.support.redis_memory import full
from tests.support.timing import promptly

WITHIN_SECONDS = WORKER_BACK_SECONDS + REPUBLISH_SECONDS + SLACK_SECONDS
SIX_SECONDS = 60  # writes of the traffic; longer than any timeout
Fault = Callable[[World, Traffic], None]


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return SETTINGS | STEADY_CACHE


def outage(begin: Callable[[RecordingProxy], None], world: World, traffic: Traffic) -> None:
    begin(world.broker_proxy)
    traffic.goes_on_for(SIX_SECONDS)
    world.broker_proxy.passes()


def restarts_empty(world: World, traffic: Traffic) -> None:
    world.broker_server.kill()
    traffic.goes_on_for(20)
    restart(world.broker_server, keep_data=False)


def is_full(world: World, traffic: Traffic) -> None:
    with full(world.broker):
        traffic.goes_on_for(SIX_SECONDS)


FAULTS: dict[str, Fault] = {
    "hung": partial(outage, RecordingProxy.hangs),
    "refuses": partial(outage, RecordingProxy.refuses),
    "slow": partial(outage, partial(RecordingProxy.slows, delay_seconds=0.3)),
    "loses_replies": partial(outage, RecordingProxy.drops_replies),
    "cuts": lambda world, _: world.broker_proxy.cuts(),
    "goes_half_open": lambda world, _: world.broker_proxy.goes_half_open(),
    "restarts_empty": restarts_empty,
    "is_full": is_full,
}


@pytest.mark.failure("W20", "W21", "W24", "W26")
@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=pytest.mark.long if name == "loses_replies" else ()) for name in FAULTS]
)
def test_keys_are_fresh_again_after_a_fault_of_the_broker_under_load(world: World, fault: str) -> None:
    def taken() -> int:
        replies = [one.reply for one in world.broker_proxy.history.exchanges("BRPOP") if one.is_answered]
        return sum(reply is not None for reply in replies)

    with Traffic(world) as traffic:
        traffic.goes_on_for(5)
        FAULTS[fault](world, traffic)
        before = taken()
        promptly(lambda: taken() > before, "it takes messages again", WITHIN_SECONDS)
    assert traffic.errors.total() == 0  # no read and no invalidation has failed
    world.verify(within_seconds=WITHIN_BROKER_OUTAGE_SECONDS)


@pytest.fixture
def own_world(stack: ExitStack, redis_server: RedisServer, arcadedb: ArcadeDbServer, tmp_path: Path) -> World:
    """A world whose broker is replaced."""
    cache = stack.enter_context(RedisServer.start())
    world = make_world(stack, cache, redis_server, arcadedb, tmp_path, SETTINGS | STEADY_CACHE)
    world.begin()
    return world


def behind_sentinels(fault: str, world: World, stack: ExitStack) -> Callable[[], redis.Redis]:
    sentinels = Sentinels(stack)
    world.parts.env["CACHE_BROKER_URL"] = sentinels.url(1)
    world.client = world.parts.client()
    return lambda: stack.enter_context(sentinels.client(getattr(sentinels, fault)(), db=1))


def behind_one_address(world: World, stack: ExitStack) -> Callable[[], redis.Redis]:
    old = world.broker_server
    new = replica_of(stack, old)
    demoted, promoted = (stack.enter_context(redis.Redis.from_url(server.url(1))) for server in (old, new))

    def fails_over() -> redis.Redis:
        promoted.replicaof("NO", "ONE")
        demoted.replicaof(new.host, str(new.port))
        # Connections to the old master stay open: it rejects every message.
        world.broker_proxy.leads_to(new.url())
        return promoted

    return fails_over


MASTERS: dict[str, Callable[[World, ExitStack], Callable[[], redis.Redis]]] = {
    "fail_over": partial(behind_sentinels, "fail_over"),
    "kill_master": partial(behind_sentinels, "kill_master"),
    "cut_off_master": partial(behind_sentinels, "cut_off_master"),
    "behind one address": behind_one_address,
}
"""What prepares a broker with a replica, and returns the failover, which returns a client of the new master."""


@pytest.mark.failure("W37")
@pytest.mark.parametrize("masters", MASTERS)
def test_keys_are_fresh_again_after_the_broker_failed_over_under_load(
    own_world: World, stack: ExitStack, masters: str
) -> None:
    world, fails_over = own_world, MASTERS[masters](own_world, stack)
    with Traffic(world) as traffic:
        traffic.goes_on_for(5)
        world.broker = fails_over()
        before = world.count_of("committed")
        promptly(lambda: world.count_of("committed") > before + 2, "refreshes are committed", WITHIN_SECONDS)
    assert traffic.errors.total() == 0
    world.verify(within_seconds=WITHIN_BROKER_OUTAGE_SECONDS)
