"""The broker hangs, is cut off, slow, gone, full and back again: the worker recovers by itself.

`make test-long` adds a broker that loses its answers, which to a worker is much like one that hangs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.acceptance.worker_faults.conftest import (
    REPUBLISH_SECONDS,
    SETTINGS,
    SLACK_SECONDS,
    STEADY_CACHE,
    WITHIN_BROKER_OUTAGE_SECONDS,
    WORKER_BACK_SECONDS,
    World,
)
from tests.acceptance.worker_faults.traffic import Traffic
from tests.support.recording_proxy import RecordingProxy
from tests.support.redis_memory import full
from tests.support.timing import promptly

OUTAGES: dict[str, Callable[[RecordingProxy], None]] = {
    "hung": RecordingProxy.hangs,
    "refuses": RecordingProxy.refuses,
    "slow": partial(RecordingProxy.slows, delay_seconds=0.3),
    "loses_replies": RecordingProxy.drops_replies,
}


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return SETTINGS | STEADY_CACHE


@pytest.mark.failure("W20")
@pytest.mark.parametrize(
    "outage", [pytest.param(name, marks=pytest.mark.long if name == "loses_replies" else ()) for name in OUTAGES]
)
def test_keys_are_fresh_again_after_a_broker_outage_under_load(world: World, outage: str) -> None:
    with Traffic(world) as traffic:
        traffic.goes_on_for(5)
        OUTAGES[outage](world.broker_proxy)
        traffic.goes_on_for(60)  # six seconds: longer than any timeout
        world.broker_proxy.passes()
        is_back(world)
    assert traffic.errors.total() == 0  # no read and no invalidation has failed
    world.verify(within_seconds=WITHIN_BROKER_OUTAGE_SECONDS)


@pytest.mark.failure("W21")
@pytest.mark.parametrize("fault", ["cuts", "goes_half_open"])
def test_keys_are_fresh_again_after_broker_connections_were_lost_under_load(world: World, fault: str) -> None:
    with Traffic(world) as traffic:
        traffic.goes_on_for(5)
        getattr(world.broker_proxy, fault)()
        is_back(world)
    assert traffic.errors.total() == 0
    world.verify(within_seconds=WITHIN_BROKER_OUTAGE_SECONDS)


@pytest.mark.failure("W24")
def test_keys_are_fresh_again_after_the_broker_restarted_empty_under_load(world: World) -> None:
    with Traffic(world) as traffic:
        traffic.goes_on_for(5)
        world.broker_server.kill()
        traffic.goes_on_for(20)
        world.broker_server.restart(keep_data=False)
        is_back(world)
    assert traffic.errors.total() == 0
    world.verify(within_seconds=WITHIN_BROKER_OUTAGE_SECONDS)


@pytest.mark.failure("W26")
def test_keys_are_fresh_again_after_the_broker_was_full_under_load(world: World) -> None:
    with Traffic(world) as traffic:
        traffic.goes_on_for(5)
        with full(world.broker):
            traffic.goes_on_for(60)
        is_back(world)
    assert traffic.errors.total() == 0
    world.verify(within_seconds=WITHIN_BROKER_OUTAGE_SECONDS)


def is_back(world: World) -> None:
    """Wait until the worker takes what is put into the queue."""
    taken, promised_seconds = _taken(world), WORKER_BACK_SECONDS + REPUBLISH_SECONDS + SLACK_SECONDS
    promptly(lambda: _taken(world) > taken, "it takes messages again", promised_seconds)


def _taken(world: World) -> int:
    replies = [exchange.reply for exchange in world.broker_proxy.history.exchanges("BRPOP") if exchange.is_answered]
    return sum(reply is not None for reply in replies)
