"""The lease record's scripts on a real Redis, compared step by step with the model and docs/explanation/protocol.md.

The clock is the test's: it goes forward, to the very microsecond of a deadline and past it, and back. The default run
plays the same examples every time. `make test-long` plays many more, new ones each time; the output of a failure has
the line that repeats its example.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as play

from api_client.protocol import lease
from api_client.protocol.lease import BookmarkFault, process_identity
from api_client.transport.scripts import LeaseStore
from tests.property.lease_model import ACQUIRED, ALREADY_REFRESHED, REFUSED, TOLERATED_US, Model, StoredEntry
from tests.support import lease_world as lasting
from tests.support.frozen_lease import FrozenLease
from tests.support.lease_invariants import Watch, frozen_fields
from tests.support.lease_world import FOREIGN_ENTRIES, ClockedWorld
from tests.support.movable_clock import ClockedRedis, MovableClock
from tests.support.requirements import IS_LONG
from tests.support.waiting import MAX_WAIT_SECONDS

STEPS, EXAMPLES = (80, 20_000) if IS_LONG else (60, 150)
PHASES = (Phase.generate, Phase.shrink)
STEPS_BACK = ("before it was set", "before it was published")
RUN_STEPS = st.sampled_from(["commit", "commit", "commit", "renew", "retry", "fail", "hand_back"])


class LeaseMachine(RuleBasedStateMachine):
    """Every call goes through `do`, which runs the model too; a repeat is `do` again with the same arguments."""

    client: redis.Redis
    clock: MovableClock
    begins_at_us: int

    @initialize()
    def begin(self) -> None:
        self.world = ClockedWorld(self.client, LeaseStore(self.client), clock=self.clock)
        self.world.store = self.frozen = FrozenLease(self.world)
        self.model, self.watch = Model(process_identity()), Watch()
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        # Each example from the same time: thousands of them would go on into the next century.
        self.world.at(self.begins_at_us)
        self._move_clock(0)

    # ── readers, workers and writers ──

    @rule(seen=st.sampled_from([None, "entry", "nothing", "another"]), force=st.booleans(), marks=st.integers(0, 2))
    def claim(self, seen: str | None, force: bool, marks: int) -> None:
        there = self.model.entry.token if self.model.entry else 0
        tokens = {None: None, "entry": there, "nothing": 0, "another": 12345}
        self.do("claim", f"claim-{len(self.calls)}", tokens[seen], force, ("b1", "b2")[:marks])

    @rule(back=st.integers(0, 3), forget=st.booleans())
    def unclaim(self, back: int, forget: bool) -> None:
        ids = [args[0] for step, args in self.calls if step == "claim"]
        self.do("unclaim", ids[-1 - back % len(ids)] if ids else "none", forget)

    @rule(forget=st.sampled_from([False, False, True]))
    @precondition(lambda self: self.model.record is not None and self.model.record.failures)
    def a_claim_of_a_failing_key_is_taken_back(self, forget: bool) -> None:
        """Unclaim, as a reader that can't reach the broker."""
        claim_id = f"claim-{len(self.calls)}"
        self.do("claim", claim_id, None, True, ())
        self.do("unclaim", claim_id, forget)

    @rule()
    def republish(self) -> None:
        self.do("republish")

    @rule(
        number=st.sampled_from(["claim's", "old", "entry's"]),
        ticket=st.sampled_from(["", "ticket", "wrong"]),
        in_place=st.booleans(),
    )
    def acquire(self, number: str, ticket: str, in_place: bool = False) -> None:
        record, entry = self.model.record, self.model.entry
        numbers = {"claim's": (record and record.claim_number) or 0, "old": 5, "entry's": entry.token if entry else 0}
        tickets = {"": "", "ticket": (record and record.ticket) or "", "wrong": "wrong"}
        self.do("acquire", self._nonce(), numbers[number], tickets[ticket], in_place)

    @rule(marks=st.integers(0, 1))
    @precondition(lambda self: self.model.record is None or self.model.record.state == "invalidated")
    def claim_and_acquire(self, marks: int) -> None:
        """Take the most usual steps: without this rule most runs of the machine would never see an entry."""
        there = self.model.entry.token if self.model.entry else 0
        self.do("claim", f"claim-{len(self.calls)}", there, False, ("b5",)[:marks])
        self.do("acquire", self._nonce(), self.model.record.claim_number, "")

    @rule(late_seconds=st.sampled_from([0, 0, 1_730, 70_000]))
    @precondition(lambda self: self.model.record is not None and self.model.record.run is not None)
    def newest_run_commits(self, late_seconds: int) -> None:
        run = self.model.record.run
        self._move_clock(late_seconds * 1_000_000)
        self.do("commit", run.token, run.nonce)

    @rule(previous=st.sampled_from(["entry's", "entry's", "another"]))
    @precondition(lambda self: self.model.record is not None and self.model.record.run is not None)
    def newest_run_finds_the_entry_unchanged(self, previous: str) -> None:
        run, entry = self.model.record.run, self.model.entry
        self.do("prolong", run.token, run.nonce, entry.nonce if entry and previous == "entry's" else b"another-")

    @rule(next_step=st.sampled_from(["claim", "claim and commit", "claim and acquire again", "acquire"]))
    @precondition(lambda self: self.model.record is not None and self.model.record.run is not None)
    def the_lease_runs_out(self, next_step: str) -> None:
        """Let another claim or run meet what a run left, or its late commit or repeated acquire a claim."""
        record = self.model.record
        self._move_clock(max(0, record.until - self.clock.now_us))
        if next_step == "acquire":
            self.do("acquire", self._nonce(), record.claim_number, "")
        else:
            self.do("claim", f"claim-{len(self.calls)}", None, False, ())
        if next_step == "claim and commit":
            self.do("commit", record.run.token, record.run.nonce)
        elif next_step == "claim and acquire again":
            self.do("acquire", record.run.nonce, record.claim_number, "")

    @rule()
    @precondition(lambda self: self.model.record is not None and self.model.record.state == "running")
    def the_run_is_handed_back_and_its_acquire_comes_again(self) -> None:
        record = self.model.record
        self.do("hand_back", record.run.token, record.run.nonce)
        self.do("acquire", record.run.nonce, record.claim_number, "")

    @rule(times=st.integers(1, 4), why=st.sampled_from(["", "why"]), runs_again=st.booleans())
    @precondition(lambda self: self.model.record is None or self.model.record.state == "cooling")
    def the_key_fails_again_and_again(self, times: int, why: str, runs_again: bool) -> None:
        for _ in range(times):
            nonce = self._claim_by_force_and_acquire()
            self.do("fail", self.model.record.run.token, nonce, True, 0, why)
        if runs_again:
            self._claim_by_force_and_acquire()

    def _claim_by_force_and_acquire(self) -> bytes:
        self.do("claim", f"claim-{len(self.calls)}", None, True, ())
        nonce = self._nonce()
        self.do("acquire", nonce, self.model.record.claim_number, "")
        return nonce

    @rule(bookmarks=st.sampled_from(BookmarkFault))
    @precondition(lambda self: self.model.record is not None and self.model.record.state == "running")
    def newest_run_fails_by_its_bookmarks(self, bookmarks: BookmarkFault) -> None:
        run = self.model.record.run
        self.do("fail", run.token, run.nonce, False, int(bookmarks))
        self.do("claim", f"claim-{len(self.calls)}", None, False, ())

    @rule()
    @precondition(lambda self: self.model.record is not None and self.model.record.state == "retrying")
    def ticket_is_used(self) -> None:
        self.do("acquire", self._nonce(), 5, self.model.record.ticket)

    @rule(step=RUN_STEPS, back=st.sampled_from([0, 0, 0, 1, 2]))
    @precondition(lambda self: self.watch.runs)
    def run_goes_on_or_ends(self, step: str, back: int) -> None:
        token, nonce = self.watch.runs[max(0, len(self.watch.runs) - 1 - back)]
        self.do(step, token, nonce, *([f"ticket-{len(self.calls)}"] if step == "retry" else []))

    @rule(step=RUN_STEPS, token_off=st.integers(0, 1))
    @precondition(lambda self: self.model.record and self.model.record.run)
    def stranger(self, step: str, token_off: int) -> None:
        token, nonce = self.watch.runs[-1]
        self.do(step, token + token_off, nonce if token_off else b"stranger", *(["t"] if step == "retry" else []))

    @rule(hard=st.sampled_from([False, False, False, True]), marks=st.integers(0, 2))
    def invalidate(self, hard: bool, marks: int) -> None:
        self.do("invalidate", hard, ("b3", "b4")[:marks])

    @rule(back=st.sampled_from([*[0] * 10, *range(30)]))
    @precondition(lambda self: self.calls)
    def reply_is_lost_and_the_step_repeated(self, back: int) -> None:
        step, args = self.calls[-1 - back % len(self.calls)]
        # A nonce is drawn once. That its number comes again too takes lost data and the very same microsecond.
        if step != "acquire" or (self.model.draw(), args[0]) not in self.watch.began:
            self.do(step, *args)

    # ── the environment ──

    @rule(seconds=st.sampled_from([1, 620, 1_730, 1_730, 6_100, 70_000, 250_000]))
    def time_passes(self, seconds: int) -> None:
        self._move_clock(seconds * 1_000_000)

    @rule(which=st.sampled_from(["until", "limit", "published", "soft_expiry", *STEPS_BACK]), off_us=st.integers(-1, 1))
    @precondition(lambda self: self.model.record or self.model.entry)
    def a_deadline_comes(self, which: str, off_us: int) -> None:
        record, entry = self.model.record, self.model.entry
        deadlines = {
            "until": record and record.until,
            "limit": record and record.run and record.run.limit,
            "published": record and record.published is not None
            and record.published + int(lasting.REPUBLISH_SECONDS * 1e6) * 2**record.republished,
            "soft_expiry": entry and entry.soft_expiry,
            "before it was set": record and record.since and record.since - TOLERATED_US,
            "before it was published": record and record.published and record.published - TOLERATED_US,
        }  # fmt: skip
        # The next step is taken a microsecond later.
        left_us = (deadlines[which] or 0) + off_us - 1 - self.clock.now_us
        if left_us > 0 or (deadlines[which] and which in STEPS_BACK):
            self._move_clock(left_us)

    @rule(seconds=st.sampled_from([0.5, 1, 3_600, 90_000]))
    def clock_steps_back(self, seconds: float) -> None:
        self._move_clock(int(-seconds * 1_000_000))

    @rule(what=st.sampled_from(["nothing"] * 4 + ["entry", "record", "both"]))
    @precondition(lambda self: self.model.entry or self.model.record)
    def redis_evicts_or_restarts_empty(self, what: str) -> None:
        lost = [part for part in ("entry", "record") if what in {part, "both"}]
        for part in lost:
            self.frozen.delete(getattr(self.world.key, part))
            setattr(self.model, part, None)
        self._look()

    @rule()
    def scripts_are_forgotten(self) -> None:
        self.client.script_flush()

    @rule(kind=st.sampled_from(["none", "none", *FOREIGN_ENTRIES]), age_seconds=st.sampled_from([10, 200_000]))
    def an_entry_that_is_not_ours_is_there(self, kind: str, age_seconds: int) -> None:
        if kind == "none" or self.model.entry:
            return
        token, nonce = self.clock.now_us - age_seconds * 1_000_000, b"planted-"
        self.world.plant_foreign(kind, token, nonce=nonce)
        if kind in {"older", "newer"}:
            soft_expiry = token + int(lasting.TTL_SECONDS * 1e6)
            self.model.entry = StoredEntry(token, nonce, soft_expiry, self.model.after(lasting.HARD_TTL_SECONDS))
            self.watch.planted(token)
        self.frozen.changed()
        self._look()

    def _nonce(self) -> bytes:
        return f"{len(self.calls):08d}".encode()

    def _move_clock(self, by_us: int) -> None:
        self.frozen.move_clock(by_us / 1e6)
        self.model.move_clock(self.clock.now_us)
        self._look()

    def _look(self) -> None:
        self.seen = self.frozen.look()
        self.watch.look(self.seen)

    # ── each step: the script replies as the model does ──

    def do(self, step: str, *args: Any) -> None:
        self.calls.append((step, args))
        # No two steps at the same microsecond, as on a real Redis, which counts lives in milliseconds.
        self.clock.now_us += 1
        self.model.move_clock(self.clock.now_us)
        if self.clock.now_us % 1_000 == 0:
            self._move_clock(0)
        getattr(self, f"_{step}", self._compare)(step, *args)
        self._look()

    def _compare(self, step: str, *args: Any) -> None:
        """Compare the reply of a step that returns one word or number."""
        assert getattr(self.world, step)(*args) == getattr(self.model, step)(*args)

    def _claim(self, _: str, claim_id: str, seen: int | None, force: bool, marks: tuple[str, ...]) -> None:
        reply = self.world.claim(claim_id, seen=seen, force=force, bookmarks=marks)
        before, drawn = self.model.record, self.model.draw()
        assert (reply.status, reply.state) == self.model.claim(claim_id, seen, force, marks)
        record, is_same = self.model.record, before is not None and before == self.model.record
        assert reply.number == (record.claim_number if is_same else drawn)
        is_told = before is not None and reply.status == REFUSED
        why = (before.kind or "", before.attempts or 0, before.why or "") if is_told else ("", 0, "")
        assert (reply.kind, reply.attempts, reply.why) == why
        if reply.status == ALREADY_REFRESHED:
            assert (reply.claim_number, reply.left_seconds) == (0, 0)
        else:
            assert reply.claim_number == (record.claim_number or 0)
            assert reply.left_seconds == self.model.left_us() / 1e6
        assert reply.now_us == self.model.now

    def _acquire(self, _: str, nonce: bytes, number: int, ticket: str, in_place: bool = False) -> None:
        before = self.seen.raw_entry
        reply = self.world.acquire(nonce, number=number, ticket=ticket, in_place=in_place)
        assert (reply.status, reply.state, reply.token) == self.model.acquire(nonce, number, ticket, in_place)
        record = self.model.record
        assert reply.now_us == self.model.now
        assert reply.left_seconds == (self.model.left_us() / 1e6 if reply.status != 2 and record else 0)
        if reply.status == ACQUIRED:
            self.watch.acquired((reply.token, nonce))
            assert (reply.generation, reply.bookmarks) == (record.generation or 0, self.model.to_read_after())
            assert reply.claimed_at_us == record.claimed_at
            assert reply.attempts == (record.attempts or 0)
            assert reply.has_overtaken == (record.overtook == nonce)
            length = int.from_bytes(before[6:8], "big") if self.model.entry else 0
            assert reply.entry_header == (before[:length] if length else b"")

    def _fail(
        self, _: str, token: int, nonce: bytes, is_counted: bool = False, bookmarks: int = 0, why: str = ""
    ) -> None:
        longest_seconds = lasting.MAX_COOLING_SECONDS if is_counted else 0.0
        reply = self.world.store.run(
            lease.fail(
                self.world.key, token=token, nonce=nonce, cooling_seconds=lasting.COOLING_SECONDS, kind="syntax",
                attempts=2, retention_seconds=lasting.RETENTION_SECONDS, longest_seconds=longest_seconds,
                bookmarks=BookmarkFault(bookmarks), why=why,
            )
        )  # fmt: skip
        replied = reply and (reply.pause_seconds, reply.failures, reply.failed_token)
        assert replied == self.model.fail(token, nonce, is_counted=is_counted, bookmarks=bookmarks, why=why)

    def _renew(self, _: str, token: int, nonce: bytes) -> None:
        is_mine = self.model.renew(token, nonce)
        left_us = self.model.record.until - self.model.now if is_mine else 0
        assert self.world.renew(token, nonce) == left_us / 1e6

    def _hand_back(self, _: str, token: int, nonce: bytes) -> None:
        is_mine = self.model.hand_back(token, nonce)
        assert self.world.hand_back(token, nonce) == (self.model.record.claim_number if is_mine else 0)

    def _commit(self, _: str, token: int, nonce: bytes) -> None:
        status = self.world.commit(token, nonce)
        self.watch.committed((token, nonce), status, self.seen, self.frozen.look())
        assert status == self.model.commit(token, nonce)

    def _prolong(self, _: str, token: int, nonce: bytes, previous: bytes) -> None:
        before = self.seen.raw_entry
        status = self.world.prolong(token, nonce, previous)
        after = self.frozen.look()
        self.watch.committed((token, nonce), status, self.seen, after)
        assert status == self.model.commit(token, nonce, prolongs=previous)
        if after.raw_entry != before:
            assert payload_of(after.raw_entry) == payload_of(before)

    def _invalidate(self, _: str, hard: bool, marks: tuple[str, ...]) -> None:
        generation = self.world.invalidate(hard=hard, bookmarks=marks)
        self.watch.invalidated(generation, hard=hard)
        assert generation == self.model.invalidate(hard, marks)

    @invariant()
    def entry_and_record_are_as_the_model_says(self) -> None:
        seen, record, now_ms = self.seen, self.model.record, self.model.now // 1000
        assert seen.record == (record.fields() if record else {})
        assert seen.record_ms == (record.gone_at_ms - now_ms if record else -2)
        expected = self.model.entry
        entry = frozen_fields(seen.raw_entry)
        if expected is None:
            assert entry is None
        else:
            assert entry == (expected.token, expected.generation, expected.soft_expiry, expected.nonce)
            assert seen.entry_ms == expected.gone_at_ms - now_ms

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.client.delete(self.world.key.entry, self.world.key.record)


def payload_of(raw_entry: bytes) -> bytes:
    return raw_entry[int.from_bytes(raw_entry[6:8], "big") :]


def machine_on(redis_: ClockedRedis, client: redis.Redis) -> type[LeaseMachine]:
    parts = {"client": client, "clock": redis_.clock, "begins_at_us": redis_.clock.now_us}
    return type("Machine", (LeaseMachine,), parts)


@pytest.mark.promise("Protocol", "The scripts keep I1 to I3 and I6 in random sequences of steps")
@pytest.mark.longer
@pytest.mark.timeout((60 if IS_LONG else 15) * MAX_WAIT_SECONDS)
def test_the_scripts_do_what_the_model_says_and_keep_the_invariants(clocked_redis: ClockedRedis) -> None:
    with redis.Redis.from_url(clocked_redis.server.url()) as client:
        machine = machine_on(clocked_redis, client)
        play(
            machine,
            settings=settings(
                max_examples=EXAMPLES, stateful_step_count=STEPS, phases=PHASES, derandomize=not IS_LONG,
                print_blob=True, database=None, deadline=None,
            ),
        )  # fmt: skip


# ── found after thousands of examples ──


@pytest.fixture
def machine(clocked_redis: ClockedRedis) -> Iterator[LeaseMachine]:
    with redis.Redis.from_url(clocked_redis.server.url()) as client:
        machine = machine_on(clocked_redis, client)()
        machine.begin()
        yield machine
        machine.teardown()


def test_an_unclaim_after_an_uncounted_failure_matches_the_model(machine: LeaseMachine) -> None:
    """A count of 0 failures stays in the record, equivalent to no count."""
    machine.invalidate(hard=False, marks=1)
    machine.acquire(number="claim's", ticket="")
    machine.newest_run_fails_by_its_bookmarks(bookmarks=BookmarkFault.REFUSED)
    machine.unclaim(back=0, forget=False)
    machine.entry_and_record_are_as_the_model_says()


def test_the_order_of_bookmarks_of_two_periods_matches_the_model(machine: LeaseMachine) -> None:
    """A bookmark of both periods is at its last place."""
    machine.invalidate(hard=False, marks=2)
    machine.time_passes(seconds=620)
    machine.invalidate(hard=False, marks=1)
    machine.acquire(number="claim's", ticket="")
    machine.entry_and_record_are_as_the_model_says()
