"""Messages and replies that are lost, doubled or late."""

from __future__ import annotations

import pytest

from tests.acceptance.worker_faults.conftest import (
    PATIENT_SETTINGS,
    REPUBLISH_SECONDS,
    SLACK_SECONDS,
    WITHIN_LEASE_SECONDS,
    World,
)
from tests.support.recording_proxy import StopPoint
from tests.support.versioned_queries import VERSIONED
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("patient_publishers")

WITHIN_REPUBLISH_SECONDS = REPUBLISH_SECONDS + 2 + SLACK_SECONDS  # a reader triggers once per second


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return PATIENT_SETTINGS


@pytest.mark.failure("W15")
@pytest.mark.parametrize("moment", StopPoint)
@pytest.mark.parametrize("step", ["claim", "acquire", "commit"])
def test_a_lease_step_whose_request_or_reply_is_lost_is_retried_and_applied_once(
    world: World, step: str, moment: StopPoint
) -> None:
    key = world.stale_key()
    lost = world.cache_proxy.loses(step, moment, key=world.tag(key))
    world.read(key)
    world.verify(within_seconds=WITHIN_LEASE_SECONDS)
    assert lost.met is not None
    assert world.runs(key) == world.claims(key) == ["committed", "committed"]


@pytest.mark.failure("W16")
def test_a_load_is_stored_as_stale_after_an_invalidation_whose_reply_was_lost(world: World) -> None:
    key = world.stale_key()
    world.start_held_load(key)
    lost = world.cache_proxy.loses("invalidate", StopPoint.REPLY, key=world.tag(key))
    world.write(key)
    assert lost.met is not None
    world.let_go(key)
    world.verify(within_seconds=WITHIN_LEASE_SECONDS)
    assert world.runs(key) == ["committed", "committed (as stale)", "committed"]


@pytest.mark.failure("W17")
def test_readers_republish_messages_that_a_flushed_broker_has_lost(world: World) -> None:
    keys = [world.stale_key() for _ in range(4)]
    with world.broker_proxy.stopping("BRPOP", StopPoint.REPLY):  # so that the worker takes no more
        world.worker().kill()
    for key in keys:
        world.read(key)
    eventually(lambda: world.client.flush(1) and world.broker.llen("cache.refresh") == 4, "they are queued")
    world.broker.flushall()
    world.worker()
    world.verify(within_seconds=WITHIN_REPUBLISH_SECONDS, killed=True)
    for key in keys:
        assert world.claims(key) == ["committed", "committed"]


@pytest.mark.failure("W18")
def test_without_a_republication_the_claim_expires_and_the_next_reader_claims(world: World) -> None:
    key = world.stale_key()
    lost = world.broker_proxy.loses("BRPOP", StopPoint.REPLY)
    world.read(key)
    lost.wait()
    world.let_lapse(key)
    world.verify(within_seconds=WITHIN_LEASE_SECONDS)
    assert world.claims(key) == ["committed", "expired", "committed"]


@pytest.mark.failure("W19")
def test_a_message_delivered_twice_or_after_its_refresh_is_skipped(world: World) -> None:
    key = world.stale_key()
    before = len(published(world))
    world.start_held_load(key)
    message = published(world)[before]
    world.broker.lpush("cache.refresh", message)
    eventually(lambda: world.count_of("skipped (running)"), "the duplicate has been processed")
    world.let_go(key)
    eventually(lambda: world.is_fresh(key), "the first has committed")
    record = world.client.key(VERSIONED, {"key": key})
    eventually(lambda: world.parts.record(record) == {}, "nothing of the claim is left")
    world.broker.lpush("cache.refresh", message)
    verdict = world.verify(within_seconds=WITHIN_LEASE_SECONDS)
    assert world.runs(key) == ["committed", "committed"]
    eventually(lambda: world.count_of("skipped (already_fresh)"), "the late one finds nothing to do")
    assert verdict.faults == []


def published(world: World) -> list[bytes]:
    """Return the messages published to the queue of refreshes so far."""
    sent = [exchange.command for exchange in world.broker_proxy.history.exchanges("LPUSH")]
    return [command[2] for command in sent if command[1] == b"cache.refresh"]
