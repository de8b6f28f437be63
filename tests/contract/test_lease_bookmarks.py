"""Bookmarks in the lease record: their lifetime, the claims that they affect, and loads that fail due to them."""

from __future__ import annotations

import pytest

from api_client.protocol.lease import BookmarkFault, ClaimStatus, RecordState
from tests.support import lease_world
from tests.support.lease_world import ClockedWorld, World

KEPT_US = 600_000_000  # at least; at most twice as long
OTHER = b"nonce--2"
CLAIMED, REFUSED = ClaimStatus.CLAIMED, ClaimStatus.REFUSED


def fails(world: World, fault: BookmarkFault, nonce: bytes = b"nonce--1") -> None:
    """Run the load of the queued claim, and let it fail."""
    assert world.fail(world.acquire(nonce).token, nonce, fault)
    assert world.state() == RecordState.COOLING


# Bookmarks of a claim.


@pytest.mark.parametrize("refused_by", ["claim", "acquire", "entry"])
def test_bookmarks_of_a_refused_claim_do_not_enter_the_record(world: World, refused_by: str) -> None:
    if refused_by == "entry":
        world.plant(100)
        world.invalidate()
    else:
        getattr(world, refused_by)()
    assert world.claim("other", seen=99, bookmarks=["b9"]).status is not CLAIMED
    assert b"b9" not in b" ".join(world.record().values())
    assert world.acquire(OTHER, ticket="").bookmarks == () or refused_by == "acquire"


# Bookmarks of invalidations.


def test_a_bookmark_of_an_invalidation_is_kept_for_10_to_20_minutes(clocked_world: ClockedWorld) -> None:
    world = clocked_world
    begun = world.clock.now_us
    world.invalidate(bookmarks=["b1"])
    world.at(begun + KEPT_US - 1)
    world.invalidate(bookmarks=["b2"])
    assert given(world) == ("b1", "b2")
    world.at(begun + KEPT_US)  # the first period is over: the next invalidation begins the second
    world.invalidate(bookmarks=["b3"])
    assert given(world) == ("b1", "b2", "b3")
    world.at(begun + 2 * KEPT_US - 1)
    world.invalidate(bookmarks=["b4"])
    assert given(world) == ("b1", "b2", "b3", "b4")
    world.at(begun + 2 * KEPT_US)
    assert given(world) == ("b3", "b4")
    world.invalidate(bookmarks=["b5"])
    assert given(world) == ("b3", "b4", "b5")


def test_a_bookmark_expires_after_20_minutes_without_new_ones(clocked_world: ClockedWorld) -> None:
    world = clocked_world
    begun = world.clock.now_us
    world.invalidate(bookmarks=["b1"])
    world.at(begun + 2 * KEPT_US - 1)
    assert given(world) == ("b1",)
    world.at(begun + 2 * KEPT_US)
    assert given(world) == ()
    world.invalidate(bookmarks=["b2"])
    assert given(world) == ("b2",)


@pytest.fixture
def brief_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all that a step lasts, and the record after it, be over in far less than ten minutes."""
    for name in vars(lease_world):
        if name.endswith("_SECONDS"):
            monkeypatch.setattr(lease_world, name, getattr(lease_world, name) / 1_000)


@pytest.mark.usefixtures("brief_steps")
def test_later_bookmarks_keep_the_record_for_longer(clocked_world: ClockedWorld) -> None:
    world, begun = clocked_world, clocked_world.clock.now_us
    world.invalidate(bookmarks=["b1"])
    world.at(begun + KEPT_US + 1_000)
    world.invalidate(bookmarks=["b2"])
    assert world.look().record_ms == 2 * KEPT_US // 1_000 - 1


@pytest.mark.usefixtures("brief_steps")
@pytest.mark.parametrize("bookmarks", [["b1"], []], ids=["bookmarks", "none"])
def test_an_invalidation_keeps_the_record_of_a_refresh_for_as_long_as_one_at_rest(
    clocked_world: ClockedWorld, bookmarks: list[str]
) -> None:
    clocked_world.claim()
    clocked_world.pass_time(50)
    clocked_world.invalidate(bookmarks=bookmarks)
    kept_seconds = 2 * KEPT_US / 1e6 if bookmarks else lease_world.RETENTION_SECONDS
    assert clocked_world.look().record_ms == round(kept_seconds * 1_000)


@pytest.mark.usefixtures("brief_steps")
def test_bookmarks_that_the_graph_refuses_keep_no_record(clocked_world: ClockedWorld) -> None:
    clocked_world.invalidate(bookmarks=["b1"])
    fails(clocked_world, BookmarkFault.REFUSED)
    kept_seconds = lease_world.COOLING_SECONDS + lease_world.RETENTION_SECONDS
    assert clocked_world.look().record_ms == round(kept_seconds * 1_000)


def given(world: ClockedWorld) -> tuple[str, ...]:
    """Return the bookmarks that a load gets now; only a number of the record changes."""
    run = world.acquire(OTHER)
    assert world.hand_back(run.token, OTHER)
    assert world.unclaim(OTHER)
    return run.bookmarks


# Failures due to bookmarks.


@pytest.mark.parametrize("fault", [BookmarkFault.NOT_REACHED, BookmarkFault.REFUSED])
def test_a_failure_due_to_a_claim_s_bookmarks_blocks_only_claims_with_bookmarks(
    world: World, fault: BookmarkFault
) -> None:
    world.invalidate(bookmarks=["good"])
    world.claim("reader", bookmarks=["bad"])
    fails(world, fault)
    reply = world.claim("reader again", bookmarks=["bad"])
    assert (reply.status, reply.state, reply.left_seconds > 0) == (REFUSED, RecordState.COOLING, True)
    assert world.claim("another").status is CLAIMED
    assert world.acquire(OTHER).bookmarks == ("good",)


def test_an_invalidation_s_refused_bookmark_is_dropped_and_a_claim_granted(world: World) -> None:
    world.invalidate(bookmarks=["bad"])
    world.claim("reader")
    fails(world, BookmarkFault.REFUSED)
    assert world.record().keys().isdisjoint({"bookmarks", "bookmarks_before", "bookmarks_since"})
    assert world.record()["cools_only_bookmarks"] == b"1"
    assert world.claim("another").status is CLAIMED
    run = world.acquire(OTHER)
    assert run.bookmarks == ()
    assert run.generation > 0  # the invalidation itself is kept


def test_an_invalidation_s_unreached_bookmark_is_kept_and_claims_are_refused(world: World) -> None:
    # The server may lag: a value loaded without the bookmark would be stored as fresh.
    world.invalidate(bookmarks=["late"])
    world.claim("reader")
    fails(world, BookmarkFault.NOT_REACHED)
    assert world.claim("another").status is REFUSED
    world.pass_time(1_000_000)
    assert world.acquire(OTHER).bookmarks == ("late",)


def test_a_bookmark_added_during_a_failing_load_is_kept(world: World) -> None:
    world.invalidate(bookmarks=["bad"])
    world.claim("reader")
    run = world.acquire()
    world.invalidate(bookmarks=["new"])
    assert world.fail(run.token, bookmarks=BookmarkFault.REFUSED)
    assert world.claim("another").status is REFUSED
    world.pass_time(1_000_000)
    assert "new" in world.acquire(OTHER).bookmarks


def test_a_failure_not_due_to_bookmarks_blocks_all_claims_and_drops_no_bookmark(world: World) -> None:
    world.invalidate(bookmarks=["b1"])
    world.claim("reader", bookmarks=["b2"])
    fails(world, BookmarkFault.NONE)
    assert world.claim("another").status is REFUSED
    world.pass_time(1_000_000)
    assert world.acquire(OTHER).bookmarks == ("b1",)


@pytest.mark.parametrize("since", ["claim", "acquire", "invalidate"])
def test_the_next_failure_not_due_to_bookmarks_blocks_all_claims_again(world: World, since: str) -> None:
    world.claim("reader", bookmarks=["bad"])
    fails(world, BookmarkFault.REFUSED)
    if since == "acquire":
        world.pass_time(1_000_000)
    elif since == "invalidate":
        world.invalidate()
        assert "cools_only_bookmarks" not in world.record()
    else:
        assert world.claim("another").status is CLAIMED
        assert "cools_only_bookmarks" not in world.record()
    fails(world, BookmarkFault.NONE, OTHER)
    assert "cools_only_bookmarks" not in world.record()
    assert world.claim("late").status is REFUSED
