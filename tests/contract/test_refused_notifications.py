"""Steps by a Redis user without permission to publish: a step that was done is reported as done."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
import redis

from api_client.protocol.lease import AcquireStatus, CommitStatus
from api_client.transport.scripts import LeaseStore
from refresher.embedded import RedisServer
from tests.support import lease_world as lasting
from tests.support.lease_world import World, fail_call

NONCE = b"nonce--1"


@pytest.fixture(params=["resetchannels", "-publish"])
def mute_world(request: pytest.FixtureRequest, redis_server: RedisServer, client: redis.Redis) -> Iterator[World]:
    """A key, and steps by a user without permission to publish."""
    user = uuid.uuid4().hex
    client.execute_command("ACL", "SETUSER", user, "on", ">secret", "~*", "&*", "+@all", request.param)
    with redis.Redis.from_url(f"redis://{user}:secret@{redis_server.host}:{redis_server.port}") as weak:
        yield World(client, LeaseStore(weak))
    client.acl_deluser(user)


def test_without_permission_to_publish_a_commit_and_its_repetition_are_accepted(mute_world: World) -> None:
    token = mute_world.acquire(number=mute_world.claim().number).token
    assert mute_world.commit(token) is CommitStatus.ACCEPTED
    assert (mute_world.entry().token, mute_world.state()) == (token, "idle")
    assert mute_world.commit(token) is CommitStatus.ACCEPTED


def test_without_permission_to_publish_a_failure_returns_its_pause(mute_world: World) -> None:
    token = mute_world.acquire(number=mute_world.claim().number).token
    reply = mute_world.store.run(fail_call(mute_world.key, token, NONCE))
    assert (reply.pause_seconds, mute_world.state()) == (lasting.COOLING_SECONDS, "cooling")


@pytest.mark.parametrize("hard", [False, True])
def test_without_permission_to_publish_an_invalidation_returns_its_generation(mute_world: World, hard: bool) -> None:
    mute_world.plant(1)
    generation = mute_world.invalidate(hard=hard)
    assert mute_world.record()["generation"] == str(generation).encode()
    assert mute_world.acquire().status is AcquireStatus.ACQUIRED
