"""Bookmarks in the lease record: their lifetime, the claims that they affect, and loads that fail due to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from api_client.protocol.lease import BookmarkFault, ClaimStatus, CommitStatus, RecordState
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


def test_a_refused_reader_s_next_claim_carries_its_bookmarks(world: World) -> None:
    running = world.acquire()
    assert world.claim("reader", seen=0, bookmarks=["b9"]).status is REFUSED
    world.commit(running.token)
    assert world.claim("reader again", seen=running.token, bookmarks=["b9"]).status is CLAIMED
    assert world.acquire(OTHER).bookmarks == ("b9",)


def test_a_claim_s_bookmarks_come_last_also_those_that_an_invalidation_has_given_before(world: World) -> None:
    for bookmark in ("first", "second"):
        world.invalidate(bookmarks=[bookmark])
    world.claim(bookmarks=["first"])
    assert world.acquire().bookmarks == ("second", "first")


def test_a_claim_s_bookmarks_survive_a_repeated_acquire_a_hand_back_and_a_retry(world: World) -> None:
    world.claim(bookmarks=["b1"])
    run = world.acquire()
    assert world.acquire().bookmarks == ("b1",)  # its reply was lost
    world.hand_back(run.token)
    again = world.acquire(OTHER)
    world.retry(again.token, OTHER)
    assert (again.bookmarks, world.acquire(ticket="ticket-1").bookmarks) == (("b1",), ("b1",))


@pytest.mark.parametrize("end", ["unclaim", "fail", "invalidate", "hard", "another claim"])
def test_bookmarks_of_a_claim_end_with_it(world: World, end: str) -> None:
    world.invalidate(bookmarks=["b1"])
    world.claim("claim-1", bookmarks=["b2"])
    if end == "unclaim":
        assert world.unclaim("claim-1")
    else:
        run = world.acquire()
        assert run.bookmarks == ("b1", "b2")
        if end == "fail":
            assert world.fail(run.token)
            world.pass_time(1_000_000)
        elif end == "another claim":  # of a run that has lapsed
            world.pass_time(1_000_000)
            assert world.claim("claim-2").status is CLAIMED
        else:
            world.invalidate(hard=end == "hard")
            world.commit(run.token)
    assert world.acquire(OTHER).bookmarks == ("b1",)


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


def test_a_late_bookmark_of_the_next_period_keeps_none_longer_than_20_minutes(clocked_world: ClockedWorld) -> None:
    world = clocked_world
    begun = world.clock.now_us
    world.invalidate(bookmarks=["b1"])
    world.at(begun + 2 * KEPT_US - 1)
    world.invalidate(bookmarks=["b2"])
    assert given(world) == ("b1", "b2")
    world.at(begun + 2 * KEPT_US)
    assert given(world) == ("b2",)
    world.at(begun + 3 * KEPT_US - 1)
    assert given(world) == ("b2",)
    world.at(begun + 3 * KEPT_US)
    assert given(world) == ()


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


def test_invalidations_without_bookmarks_do_not_extend_earlier_bookmarks(clocked_world: ClockedWorld) -> None:
    world = clocked_world
    begun = world.clock.now_us
    world.invalidate(bookmarks=["b1"])
    for minute in range(0, 22, 3):
        world.at(begun + minute * 60_000_000)
        world.invalidate()
    assert given(world) == ()


def runs(world: World) -> int:
    """Claim and acquire; return the run's token."""
    world.claim()
    return world.acquire().token


# After 300 s, and by none of them does the record keep its bookmarks for less than their time.
NEXT: Mapping[str, Callable[[World], object]] = {
    "nothing": lambda world: None,
    "another invalidation": lambda world: world.invalidate(),
    "one while it is queued": lambda world: (world.claim(), world.invalidate()),
    "claim": lambda world: world.claim(),
    "unclaim": lambda world: (world.claim(), world.unclaim()),
    "acquire": runs,
    "retry": lambda world: world.retry(runs(world)),
    "fail": lambda world: world.fail(runs(world)),
    "hand back": lambda world: world.hand_back(runs(world)),
    "commit of what is stale": lambda world: overtaken(world, hard=False),
    "commit of what is gone": lambda world: overtaken(world, hard=True),
}


def overtaken(world: World, *, hard: bool) -> None:
    """Invalidate during a run, and commit."""
    token = runs(world)
    world.invalidate(hard=hard)
    assert world.commit(token) is (CommitStatus.INVALIDATED if hard else CommitStatus.ACCEPTED_AS_STALE)


@pytest.fixture
def brief_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all that a step lasts, and the record after it, be over in far less than ten minutes."""
    for name in vars(lease_world):
        if name.endswith("_SECONDS"):
            monkeypatch.setattr(lease_world, name, getattr(lease_world, name) / 1_000)


@pytest.mark.usefixtures("brief_steps")
@pytest.mark.parametrize("after_us", [KEPT_US // 2, KEPT_US * 3 // 2], ids=["in their period", "in the next"])
@pytest.mark.parametrize("step", NEXT)
def test_a_record_is_kept_for_as_long_as_its_bookmarks_count(
    clocked_world: ClockedWorld, step: str, after_us: int
) -> None:
    world, begun = clocked_world, clocked_world.clock.now_us
    world.invalidate(bookmarks=["b1"])
    world.at(begun + after_us)
    NEXT[step](world)
    assert world.look().record_ms == (2 * KEPT_US - after_us) // 1_000
    world.at(begun + 2 * KEPT_US - 1_000)
    assert world.acquire(OTHER).bookmarks == ("b1",)


@pytest.mark.usefixtures("brief_steps")
def test_later_bookmarks_keep_the_record_for_longer(clocked_world: ClockedWorld) -> None:
    world, begun = clocked_world, clocked_world.clock.now_us
    world.invalidate(bookmarks=["b1"])
    world.at(begun + KEPT_US + 1_000)
    world.invalidate(bookmarks=["b2"])
    assert world.look().record_ms == 2 * KEPT_US // 1_000 - 1


@pytest.mark.usefixtures("brief_steps")
@pytest.mark.parametrize("begin", [World.claim, runs], ids=["queued", "running"])
@pytest.mark.parametrize("bookmarks", [["b1"], []], ids=["bookmarks", "none"])
def test_an_invalidation_keeps_the_record_of_a_refresh_for_as_long_as_one_at_rest(
    clocked_world: ClockedWorld, begin: Callable[[World], object], bookmarks: list[str]
) -> None:
    world, begun = clocked_world, clocked_world.clock.now_us
    begin(world)
    world.at(begun + 50_000_000)
    world.invalidate(bookmarks=bookmarks)
    kept_seconds = 2 * KEPT_US / 1e6 if bookmarks else lease_world.RETENTION_SECONDS
    assert world.look().record_ms == round(kept_seconds * 1_000)


@pytest.mark.usefixtures("brief_steps")
@pytest.mark.parametrize("after_us", [0, KEPT_US])
def test_bookmarks_that_the_graph_refuses_keep_no_record(clocked_world: ClockedWorld, after_us: int) -> None:
    world, begun = clocked_world, clocked_world.clock.now_us
    world.invalidate(bookmarks=["b1"])
    world.at(begun + after_us)
    fails(world, BookmarkFault.REFUSED)
    kept_seconds = lease_world.COOLING_SECONDS + lease_world.RETENTION_SECONDS
    assert world.look().record_ms == round(kept_seconds * 1_000)


@pytest.mark.usefixtures("brief_steps")
def test_without_bookmarks_a_record_lasts_for_its_retention(clocked_world: ClockedWorld) -> None:
    clocked_world.invalidate()
    assert clocked_world.look().record_ms == round(lease_world.RETENTION_SECONDS * 1_000)


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


def test_after_a_second_refusal_all_bookmarks_are_dropped(world: World) -> None:
    world.invalidate(bookmarks=["bad"])
    world.claim("reader", bookmarks=["bad too"])
    fails(world, BookmarkFault.REFUSED)
    assert world.claim("second").status is CLAIMED
    fails(world, BookmarkFault.REFUSED, OTHER)
    assert world.claim("third").status is CLAIMED
    assert world.acquire(b"nonce--3").bookmarks == ()


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


def test_a_bookmark_fault_without_bookmarks_in_the_record_blocks_all_claims(world: World) -> None:
    # The entry's own bookmarks were at fault, say: another load would have the same ones.
    world.claim("reader")
    fails(world, BookmarkFault.REFUSED)
    assert world.claim("another").status is REFUSED


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
