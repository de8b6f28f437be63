"""A wait plan, step by step: which step comes next, for every reply of Redis."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest

from api_client.errors import RefreshFailed, UnknownQuery, WaitTimeout
from api_client.protocol.entry import Flag, encode
from api_client.protocol.keys import make_key
from api_client.protocol.lease import ClaimReply, ClaimStatus, RecordState
from api_client.read.evaluate import ANY, Freshness
from api_client.read.in_place import InPlaceEnd
from api_client.read.wait import (
    Claim,
    LoadInPlace,
    Pause,
    Publish,
    Read,
    Republish,
    Step,
    WaitOptions,
    WaitPlan,
    refresh_failed,
    wait_plan,
)
from tests.support.lease_world import a_header

KEY = make_key("test", "query", {"n": 1}, 1)
NOW_US = 1_800_000_000_000_000
FRESH = Freshness(fresh=True)


def raw(token: int, **changes: Any) -> bytes:
    return encode(a_header(token, **({"read_started_us": NOW_US} | changes)), KEY.digest, b"value")


def loaded_long_ago(token: int) -> bytes:
    return raw(token, read_started_us=0, fetched_at_us=0)


def claim_reply(
    status: ClaimStatus, state: RecordState, left: float = 60.0, number: int = 10, kind: str = "", why: str = ""
) -> ClaimReply:
    return ClaimReply(status, state, left, kind, 3 if kind else 0, number, 8, NOW_US, why)


CLAIMED = claim_reply(ClaimStatus.CLAIMED, RecordState.QUEUED)
ALREADY = claim_reply(ClaimStatus.ALREADY_REFRESHED, RecordState.IDLE, 0.0)


def refused(state: RecordState, left: float = 60.0, number: int = 10, kind: str = "", why: str = "") -> ClaimReply:
    return claim_reply(ClaimStatus.REFUSED, state, left, number, kind, why)


@dataclass
class Driver:
    """Answers a plan's steps; pauses pass on its own clock."""

    plan_freshness: Freshness = ANY
    seen_token: int = 0
    timeout: float = 5.0
    jitter: float = 1.0
    now: float = 100.0
    in_place: bool = False
    plan: WaitPlan = field(init=False)
    step: Step | bytes | None = None

    def __post_init__(self) -> None:
        options = WaitOptions(self.timeout, 0.01, 0.05, lambda: self.now, lambda: self.jitter, self.in_place)
        self.plan = wait_plan(KEY, self.plan_freshness, self.seen_token, options)
        self.step = next(self.plan)

    def answer(self, reply: Any) -> Step | bytes | None:
        try:
            self.step = self.plan.send(reply)
        except StopIteration as done:
            self.step = done.value
        return self.step

    def pause(self, *, notified: bool = False, passing: float | None = None) -> Step | bytes | None:
        self.now += self.step.duration_seconds if passing is None else passing
        return self.answer(notified)

    def reads(self, found: bytes | None) -> Step | bytes | None:
        assert self.step == Read()
        return self.answer((found, NOW_US))

    def publishes(self) -> None:
        """Grant the claim, and publish it."""
        self.answer(CLAIMED)
        self.answer(None)

    def goes_on_while_it_runs(self) -> None:
        """Answer everything as if another run never ended."""
        while self.now < 200:
            self.polls_until(Claim)
            self.answer(refused(RecordState.RUNNING, 30.0))

    def polls_until(self, kind: type[Step], found: bytes | None = None) -> float:
        """Let time pass with nothing found until a step of this kind; return the seconds that took."""
        began = self.now
        while not isinstance(self.step, kind):
            _ = self.pause() if isinstance(self.step, Pause) else self.reads(found)
        return self.now - began


def test_a_granted_claim_is_published_under_its_number_and_waited_for() -> None:
    wait = Driver(seen_token=7)
    assert wait.step == Claim(7)
    assert wait.answer(CLAIMED) == Publish(10)
    assert wait.answer(None) == Pause(0.01)
    assert wait.pause() == Read()
    assert wait.reads(raw(11)) == raw(11)


def test_loads_whose_entries_this_release_can_t_read_become_rarer_and_the_timeout_names_them() -> None:
    wait, loads = Driver(timeout=20.0), list[float]()

    def load() -> None:
        loads.append(wait.now)
        wait.answer(claim_reply(ClaimStatus.CLAIMED, RecordState.QUEUED, number=10 * len(loads)))
        wait.answer(None)
        wait.pause(notified=True, passing=0.02)
        unreadable = bytearray(raw(10 * len(loads) + 1))
        unreadable[3] |= 0x80  # a flag that it does not know
        wait.reads(bytes(unreadable))
        wait.polls_until(Claim, bytes(unreadable))

    for _ in range(10):
        load()
    with pytest.raises(WaitTimeout, match="is one of them newer"):
        load()
    assert [later - earlier for earlier, later in itertools.pairwise(loads)] == pytest.approx(
        [0.02 + 0.01 * 2**number for number in range(10)]
    )


def test_an_entry_refreshed_meanwhile_is_read_at_once() -> None:
    wait = Driver()
    assert wait.answer(ALREADY) == Read()
    assert wait.reads(raw(9)) == raw(9)


def test_an_already_refreshed_entry_that_does_not_satisfy_is_claimed_with_its_own_token() -> None:
    wait = Driver(Freshness(min_generation=20), seen_token=7)
    wait.answer(ALREADY)
    assert isinstance(wait.reads(raw(9)), Pause)
    wait.polls_until(Claim, raw(9))
    assert wait.step == Claim(9)


def test_a_notification_is_followed_by_a_read_and_a_claim_at_once() -> None:
    wait = Driver()
    wait.answer(refused(RecordState.RUNNING, 30.0))
    assert wait.pause(notified=True, passing=0.001) == Read()
    assert wait.reads(None) == Claim(0)
    wait.publishes()
    assert wait.pause(notified=True, passing=0.001) == Read()
    assert wait.reads(raw(1)) == raw(1)


def test_a_cooling_key_raises_its_failure_at_once() -> None:
    wait = Driver()
    with pytest.raises(RefreshFailed) as caught:
        wait.answer(refused(RecordState.COOLING, 12.5, kind="syntax"))
    error = caught.value
    assert (error.query, error.kind, error.attempts, error.retry_after_seconds) == ("query", "syntax", 3, 12.5)
    assert not isinstance(error, UnknownQuery)


def test_params_that_the_loader_does_not_take_are_named_without_their_values() -> None:
    reply = refused(RecordState.COOLING, kind="wrong_params")
    there = "`refresher queries` shows, in a worker's environment, what it takes"
    failed = refresh_failed(make_key("test", "query", {"person": "secret", "limit": 1}, 1), reply)
    given = "the params given, 'limit', 'person', are not exactly what its loader takes"
    assert str(failed).endswith(f": {given}; {there}")
    failed = refresh_failed(make_key("test", "query", {}, 1), reply)
    assert str(failed).endswith(f": its loader requires params, and was given none; {there}")
    many = refresh_failed(make_key("test", "query", {f"p{n}": n for n in range(20)}, 1), reply)
    assert "'p0', 'p1', 'p10'" in str(many)
    assert ", …, are not" in str(many)


def test_a_failure_during_the_wait_is_raised_when_it_is_notified() -> None:
    wait = Driver()
    wait.publishes()
    wait.pause(notified=True)
    assert wait.reads(None) == Claim(0)
    with pytest.raises(UnknownQuery, match="no worker has registered the query 'query', version 1"):
        wait.answer(refused(RecordState.COOLING, kind="unknown_query"))


@pytest.mark.parametrize(("number", "then"), [(8, Publish(8)), (0, Pause(0.01))])
def test_a_queued_refresh_is_republished_when_due(number: int, then: Step) -> None:
    wait = Driver()
    assert wait.answer(refused(RecordState.QUEUED)) == Republish()
    assert wait.answer(number) == then


@pytest.mark.parametrize("state", [RecordState.RUNNING, RecordState.RETRYING])
@pytest.mark.parametrize(("left", "claimed_after"), [(0.3, 0.35), (0.0, 0.05), (30.0, 1.0)])
def test_a_refused_claim_is_repeated_when_the_state_ends_and_at_most_a_second_later(
    state: RecordState, left: float, claimed_after: float
) -> None:
    wait = Driver()
    wait.answer(refused(state, left))
    assert wait.polls_until(Claim) == pytest.approx(claimed_after, abs=0.02)


def test_a_granted_claim_is_repeated_after_a_second_since_the_message_may_be_lost() -> None:
    wait = Driver()
    wait.publishes()
    assert wait.polls_until(Claim) == pytest.approx(1.0, abs=0.02)


def test_polls_double_up_to_a_second_and_start_anew_when_notified() -> None:
    wait = Driver(timeout=60.0)
    wait.answer(refused(RecordState.RUNNING, 30.0))
    pauses = []
    for _ in range(6):
        pauses.append(wait.step.duration_seconds)
        wait.pause()
        wait.reads(None)
    assert pauses == pytest.approx([0.01, 0.02, 0.04, 0.08, 0.16, 0.32])
    wait.pause(notified=True)
    wait.reads(None)
    assert wait.answer(refused(RecordState.RUNNING, 30.0)) == Pause(0.01)


def test_a_pause_is_scaled_by_the_jitter_and_never_zero() -> None:
    wait = Driver(jitter=0.5)
    wait.answer(CLAIMED)
    assert wait.answer(None) == Pause(0.005)
    wait = Driver(jitter=0.0)
    wait.answer(CLAIMED)
    assert wait.answer(None) == Pause(0.001)


@pytest.mark.parametrize("timeout", [0.0, 0.5, 5.0])
def test_a_wait_that_times_out_names_query_and_state(timeout: float) -> None:
    wait = Driver(timeout=timeout)
    with pytest.raises(WaitTimeout, match=r"'query'.*running") as caught:
        wait.goes_on_while_it_runs()
    assert wait.now - 100.0 == pytest.approx(timeout, abs=0.02)
    assert (caught.value.query, caught.value.waited_seconds, caught.value.state) == ("query", timeout, "running")


@pytest.mark.parametrize(
    ("state", "hint"),
    [
        (RecordState.QUEUED, "a worker may have it by now; see `refresher explain`"),
        (RecordState.RUNNING, "a worker is loading it; see `refresher explain`"),
        (RecordState.RETRYING, "the load failed, and will be tried again; see `refresher explain`"),
        (RecordState.IDLE, "see `refresher status`"),
    ],
)
def test_the_hint_of_a_timeout_depends_on_the_state_of_the_lease(state: RecordState, hint: str) -> None:
    wait = Driver(timeout=0.5)
    wait.answer(refused(state))
    if wait.step == Republish():
        wait.answer(0)
    with pytest.raises(WaitTimeout) as caught:
        wait.polls_until(Claim)
    assert (caught.value.state, str(caught.value).partition("): ")[2]) == (state.value, hint)


@pytest.mark.parametrize("first", [CLAIMED, refused(RecordState.QUEUED)], ids=["own", "another's"])
@pytest.mark.parametrize("again", [CLAIMED, refused(RecordState.QUEUED)], ids=["own", "another's"])
def test_a_timeout_suspects_missing_workers_only_if_the_last_claim_was_refused_as_queued(
    first: ClaimReply, again: ClaimReply
) -> None:
    wait = Driver(timeout=1.5)
    for reply in (first, again):
        wait.polls_until(Claim)
        wait.answer(reply)
        wait.answer(0)  # the publication, or that none is due
    with pytest.raises(WaitTimeout) as caught:
        wait.polls_until(Claim)
    assert ("is a worker running?" in str(caught.value)) == (again is not CLAIMED)


def test_a_fresh_read_always_claims_and_accepts_only_an_entry_acquired_after_its_stamp() -> None:
    wait = Driver(FRESH, seen_token=9)
    assert wait.step == Claim(None)
    wait.answer(refused(RecordState.RUNNING, 30.0, number=10))
    for too_old in (9, 10):
        wait.pause()
        assert wait.reads(raw(too_old)) != raw(too_old)
    wait.pause(notified=True)
    assert wait.reads(raw(10)) == Claim(10), "what is committed after this read is to be read, not loaded again"
    wait.answer(claim_reply(ClaimStatus.CLAIMED, RecordState.QUEUED, number=15))
    wait.answer(None)
    wait.pause()
    assert wait.reads(raw(11)) == raw(11), "the first stamp was drawn after the call began already"


def test_a_commit_between_a_fresh_reader_s_read_and_next_claim_is_read_and_not_reloaded() -> None:
    wait = Driver(FRESH, seen_token=9)
    wait.answer(claim_reply(ClaimStatus.CLAIMED, RecordState.QUEUED, number=10))
    wait.answer(None)
    wait.pause(notified=True)
    assert wait.reads(raw(9)) == Claim(9)
    assert wait.answer(claim_reply(ClaimStatus.ALREADY_REFRESHED, RecordState.IDLE, number=12)) == Read()
    assert wait.reads(raw(11)) == raw(11)


@pytest.mark.parametrize(
    ("freshness", "too_old", "good"),
    [
        (Freshness(min_generation=9), raw(9), raw(10)),
        (Freshness(min_generation=20), raw(10), raw(11)),
        (Freshness(min_bookmarks=frozenset({"b1"})), raw(30, bookmarks=("b0",)), raw(12, bookmarks=("b0", "b1"))),
        (Freshness(max_age_seconds=0.0), loaded_long_ago(9), raw(9)),
        (Freshness(max_age_seconds=0.0), loaded_long_ago(10), loaded_long_ago(11)),
        (ANY, raw(10, flags=Flag.HANDOFF), raw(11, flags=Flag.HANDOFF)),
    ],
    ids=["generation", "generation that was lost", "bookmarks", "age", "acquired after the call", "handoff"],
)
def test_only_an_entry_that_satisfies_the_read_ends_the_wait(freshness: Freshness, too_old: bytes, good: bytes) -> None:
    wait = Driver(freshness)
    wait.publishes()
    wait.pause()
    assert isinstance(wait.reads(too_old), Pause)
    wait.pause()
    assert wait.reads(good) == good


def test_an_unreadable_entry_does_not_end_the_wait_and_is_claimed_with_the_token_in_it() -> None:
    wait = Driver(timeout=60.0)
    wait.answer(refused(RecordState.RUNNING, 0.3))
    wait.pause()
    newer_format = raw(42)[:2] + b"\x09" + raw(42)[3:]
    wait.reads(newer_format)
    wait.polls_until(Claim, newer_format)
    assert wait.step == Claim(42)


@pytest.mark.parametrize(
    ("reply", "number"), [(CLAIMED, 8), (refused(RecordState.QUEUED), 8)], ids=["own claim", "another's"]
)
def test_what_is_queued_is_loaded_in_place_where_it_can_be(reply: ClaimReply, number: int) -> None:
    wait = Driver(in_place=True)
    assert wait.answer(reply) == LoadInPlace(number)
    assert wait.answer(InPlaceEnd.ENDED) == Read(), "at once"
    assert wait.reads(raw(11)) == raw(11)


@pytest.mark.parametrize("state", [RecordState.RUNNING, RecordState.RETRYING])
def test_what_another_process_has_is_waited_for(state: RecordState) -> None:
    wait = Driver(in_place=True)
    assert isinstance(wait.answer(refused(state, 0.3)), Pause)


def test_a_key_that_was_taken_before_its_load_in_place_is_waited_for_and_not_published() -> None:
    wait = Driver(in_place=True)
    wait.answer(CLAIMED)
    assert wait.answer(InPlaceEnd.HELD) == Pause(0.01)


def test_a_load_in_place_that_left_no_entry_is_claimed_again_at_once() -> None:
    wait = Driver(in_place=True)
    wait.answer(CLAIMED)
    wait.answer(InPlaceEnd.ENDED)
    assert wait.reads(None) == Claim(0)
    with pytest.raises(RefreshFailed, match=r"failed \(cycle\) after 3 attempts; .*: a → b → a$") as caught:
        wait.answer(refused(RecordState.COOLING, kind="cycle", why="a → b → a"))
    assert (caught.value.kind, caught.value.hint) == ("cycle", "a → b → a")


def test_a_load_in_place_that_was_deferred_is_published_for_workers() -> None:
    own, others = Driver(in_place=True), Driver(in_place=True)
    own.answer(CLAIMED)
    assert own.answer(InPlaceEnd.DEFERRED) == Publish(10)
    others.answer(refused(RecordState.QUEUED))
    assert others.answer(InPlaceEnd.DEFERRED) == Republish()
    assert others.answer(9) == Publish(9)
