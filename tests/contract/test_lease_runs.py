"""Steps of a run on its lease: renew, commit, end; and the record that each leaves behind."""

from __future__ import annotations

import pytest

from api_client.protocol import lease
from api_client.protocol.lease import CommitStatus
from tests.support.lease_world import LEASE_SECONDS, LIMIT_SECONDS, RETENTION_SECONDS, World, a_header
from tests.support.waiting import MAX_WAIT_SECONDS

OTHER = b"nonce--2"


def test_a_lease_is_never_longer_than_the_budget(world: World) -> None:
    token = world.acquire().token
    assert world.renew(token, lease_seconds=2 * LIMIT_SECONDS) == pytest.approx(LIMIT_SECONDS, abs=60)
    assert int(world.record()["until"]) == int(world.record()["limit"])


def test_a_lease_is_cut_to_the_budget_at_its_acquire(world: World) -> None:
    reply = world.store.run(
        lease.acquire(
            world.key, nonce=b"nonce--1", claim_number=0, ticket="", lease_seconds=2 * LIMIT_SECONDS,
            limit_seconds=LIMIT_SECONDS, retention_seconds=RETENTION_SECONDS,
        )
    )  # fmt: skip
    assert reply.left_seconds == LIMIT_SECONDS
    assert world.record()["until"] == world.record()["limit"]


@pytest.mark.parametrize(("token_off", "nonce"), [(1, b"nonce--1"), (0, OTHER)])
def test_no_step_of_a_run_is_accepted_with_another_token_or_another_nonce(
    world: World, token_off: int, nonce: bytes
) -> None:
    world.claim()
    token = world.acquire().token + token_off
    before = world.record()
    assert world.renew(token, nonce) == 0
    assert not world.retry(token, nonce)
    assert not world.fail(token, nonce)
    assert not world.hand_back(token, nonce)
    assert world.commit(token, nonce) is CommitStatus.SUPERSEDED
    assert world.record() == before
    assert world.entry() is None


def test_no_step_of_a_run_is_accepted_without_a_record(world: World) -> None:
    token = world.acquire().token
    world.client.delete(world.key.record)
    assert world.commit(0, b"") is CommitStatus.LOST, "a missing record does not match an empty token and nonce"
    assert world.renew(token) == 0
    ends = (world.retry, world.fail, world.hand_back)
    assert [end.__name__ for end in ends if end(token)] == []
    assert world.commit(token) is CommitStatus.LOST
    assert (world.client.exists(world.key.record), world.entry()) == (0, None)


def test_a_run_whose_expired_lease_was_claimed_can_only_commit(world: World) -> None:
    token = world.acquire().token
    world.pass_time(LEASE_SECONDS * 1.5)
    world.claim("second")
    before = world.record()
    steps = (world.renew, world.retry, world.fail, world.hand_back)
    assert [step.__name__ for step in steps if step(token)] == []
    assert world.record() == before
    assert world.commit(token) is CommitStatus.ACCEPTED


def test_another_retry_does_not_replace_the_ticket_of_a_pause(world: World) -> None:
    token = world.acquire().token
    assert world.retry(token, ticket="ticket-1")
    assert not world.retry(token, ticket="ticket-2")
    assert world.record()["ticket"] == b"ticket-1"


@pytest.mark.promise("Protocol", "I2: an entry's token never decreases")
def test_a_commit_never_overwrites_an_entry_with_a_newer_token(world: World) -> None:
    token = world.acquire().token
    world.plant(token + 1)
    assert world.commit(token) is CommitStatus.SUPERSEDED
    world.plant(token, nonce=OTHER)
    assert world.commit(token) is CommitStatus.SUPERSEDED


@pytest.mark.promise("Protocol", "I6: after a commit an entry is one Redis key")
def test_a_commit_leaves_only_the_entry_and_notifies_waiters(world: World) -> None:
    notifications = world.client.pubsub(ignore_subscribe_messages=True)
    notifications.subscribe(world.key.channel)
    notifications.get_message(timeout=MAX_WAIT_SECONDS)
    world.claim()
    assert world.commit(world.acquire().token) is CommitStatus.ACCEPTED
    assert world.client.exists(world.key.record) == 0
    assert world.client.pttl(world.key.entry) == pytest.approx(200_000_000, abs=60_000)
    assert notifications.get_message(timeout=MAX_WAIT_SECONDS)["data"] == b"committed"
    notifications.close()


@pytest.mark.parametrize(("step", "word"), [("fail", b"failed"), ("invalidate", b"invalidated")])
def test_a_failure_and_an_invalidation_notify_waiters(world: World, step: str, word: bytes) -> None:
    token = world.acquire().token
    notifications = world.client.pubsub(ignore_subscribe_messages=True)
    notifications.subscribe(world.key.channel)
    notifications.get_message(timeout=MAX_WAIT_SECONDS)
    _ = world.fail(token) if step == "fail" else world.invalidate()
    assert notifications.get_message(timeout=MAX_WAIT_SECONDS)["data"] == word
    notifications.close()


@pytest.mark.parametrize("invalidate_first", [False, True])
def test_a_run_handed_back_but_not_published_is_unclaimed_by_its_nonce(world: World, invalidate_first: bool) -> None:
    if invalidate_first:
        world.invalidate()
    nonce = b"\xff\x00\n\r\xfe nn"
    number = world.claim().number
    world.hand_back(world.acquire(nonce, number=number).token, nonce)
    assert not world.unclaim("claim-1")
    assert world.unclaim(nonce)
    assert world.state() == ("invalidated" if invalidate_first else "idle")


def test_a_committed_entry_is_stored_unchanged(world: World) -> None:
    token = world.acquire().token
    world.commit(token, degree=12)
    assert world.entry() == a_header(token, b"nonce--1", degree=12)
