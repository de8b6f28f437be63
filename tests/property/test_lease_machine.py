"""The lease record's scripts on a real Redis, held step by step against the model and the invariants of design.md."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import redis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from api_client.lease_store import LeaseStore
from tests.property.lease_model import ACCEPTED, ACCEPTED_AS_STALE, ACQUIRED, Model
from tests.support.lease_world import World

if TYPE_CHECKING:
    from refresher.embedded import RedisServer

STEPS, EXAMPLES = 50, 250
RUN_STEPS = st.sampled_from(["commit", "commit", "commit", "renew", "retry", "fail", "release", "hand_back"])
NUMBERS = {
    "until", "number", "claim_number", "claimed_at", "token", "limit", "generation", "hard", "attempts", "published",
    "republished",
}  # fmt: skip


class LeaseMachine(RuleBasedStateMachine):
    """Every call goes through `do`, which asks the model first; a repeat is `do` again with the same arguments."""

    client: redis.Redis
    store: LeaseStore

    @initialize()
    def begin(self) -> None:
        self.world, self.model = World(self.client, self.store), Model()
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.runs: list[tuple[int, bytes]] = []  # in the order of their acquires
        self.began: dict[tuple[int, bytes], int] = {}
        self.stored: set[tuple[int, bytes]] = set()
        self.soft_at = self.hard_at = -1
        self.highest = 0

    # ── the rules ──

    @rule(seen=st.sampled_from([None, "entry", "nothing", "another"]), force=st.booleans(), marks=st.integers(0, 2))
    def claim(self, seen: str | None, force: bool, marks: int) -> None:
        there = self.model.entry.token if self.model.entry else 0
        tokens = {None: None, "entry": there, "nothing": 0, "another": 12345}
        self.do("claim", (f"claim-{len(self.calls)}", tokens[seen], force, ("b1", "b2")[:marks]))

    @rule(back=st.integers(0, 3))
    def unclaim(self, back: int) -> None:
        ids = [args[0] for step, args in self.calls if step == "claim"]
        self.do("unclaim", (ids[-1 - back % len(ids)] if ids else "none",))

    @rule()
    def republish(self) -> None:
        self.do("republish", ())

    @rule(number=st.sampled_from(["claim's", "old", "entry's"]), ticket=st.sampled_from(["", "ticket", "wrong"]))
    def acquire(self, number: str, ticket: str) -> None:
        record, entry = self.model.record, self.model.entry
        numbers = {"claim's": record.claim_number if record else 0, "old": 5, "entry's": entry.token if entry else 0}
        tickets = {"": "", "ticket": record.ticket if record else "", "wrong": "wrong"}
        self.do("acquire", (f"{len(self.calls):08d}".encode(), numbers[number], tickets[ticket]))

    @rule(marks=st.integers(0, 1))
    @precondition(lambda self: self.model.record is None or self.model.record.state == "invalidated")
    def claim_and_acquire(self, marks: int) -> None:
        """What is most usual: else most runs of the machine would never see an entry."""
        there = self.model.entry.token if self.model.entry else 0
        self.do("claim", (f"claim-{len(self.calls)}", there, False, ("b5",)[:marks]))
        self.do("acquire", (f"{len(self.calls):08d}".encode(), self.model.record.claim_number, ""))

    @rule(late=st.booleans())
    @precondition(lambda self: self.model.record is not None and self.model.record.run is not None)
    def newest_run_commits(self, late: bool) -> None:
        if late:
            self.pass_time(1_730)
        self.do("commit", (self.model.record.run.token, self.model.record.run.nonce))

    @rule()
    @precondition(lambda self: self.model.record is not None and self.model.record.state == "retrying")
    def ticket_is_used(self) -> None:
        self.do("acquire", (f"{len(self.calls):08d}".encode(), 5, self.model.record.ticket))

    @rule(step=RUN_STEPS, back=st.sampled_from([0, 0, 0, 1, 2]))
    @precondition(lambda self: self.runs)
    def run_goes_on_or_ends(self, step: str, back: int) -> None:
        token, nonce = self.runs[max(0, len(self.runs) - 1 - back)]
        self.do(step, (token, nonce, f"ticket-{len(self.calls)}") if step == "retry" else (token, nonce))

    @rule(step=RUN_STEPS, token_off=st.integers(0, 1))
    @precondition(lambda self: self.model.record and self.model.record.run)
    def stranger(self, step: str, token_off: int) -> None:
        token, nonce = self.runs[-1] if self.runs else (7, b"nobody--")
        self.do(step, (token + token_off, nonce if token_off else b"stranger", *(("t",) if step == "retry" else ())))

    @rule(hard=st.sampled_from([False, False, False, True]), marks=st.integers(0, 2))
    def invalidate(self, hard: bool, marks: int) -> None:
        self.do("invalidate", (hard, ("b3", "b4")[:marks]))

    @rule(back=st.integers(0, 30))
    def repeat(self, back: int) -> None:
        if self.calls:
            self.do(*self.calls[-1 - back % len(self.calls)])

    @rule(seconds=st.sampled_from([620, 1_730, 1_730]))
    def pass_time(self, seconds: int) -> None:
        self.world.pass_time(seconds)
        record = self.model.record
        if record:
            moved = {
                name: getattr(record, name) - seconds * 1_000_000
                for name in ("until", "published")
                if getattr(record, name) > 0
            }
            run = record.run and replace(record.run, limit=record.run.limit - seconds * 1_000_000)
            self.model.record = replace(record, run=run, **moved)

    @rule()
    def clock_steps_back(self) -> None:
        """An hour back: what the record drew before lies in the future now."""
        if self.model.record:
            ahead = self.client.hincrby(self.world.key.record, "number", 3_600_000_000)
            self.model.record = replace(self.model.record, number=ahead)

    @rule(what=st.sampled_from(["nothing"] * 5 + ["entry", "record", "both"]))
    @precondition(lambda self: self.model.entry or self.model.record)
    def evict(self, what: str) -> None:
        if what in {"entry", "both"}:
            self.client.delete(self.world.key.entry)
            self.model.entry = None
        if what in {"record", "both"}:
            self.client.delete(self.world.key.record)
            self.model.record = None

    # ── each step: the model's answer is the script's ──

    def do(self, step: str, args: tuple[Any, ...]) -> None:
        self.calls.append((step, args))
        before = self.client.get(self.world.key.entry)
        self.model.now = self.world.now_us()
        getattr(self, f"_{step}")(*args)
        if step == "commit":
            self._check_write(args, changed=self.client.get(self.world.key.entry) != before)

    def _claim(self, claim_id: str, seen: int | None, force: bool, marks: tuple[str, ...]) -> None:
        reply = self.world.claim(claim_id, seen=seen, force=force, bookmarks=marks)
        self.model.now, repeated = reply.now_us, self._is_queued_under(claim_id)
        drawn = self.model.record.claim_number if repeated else self.model.draw()
        why = self.model.record.why if self.model.record else ("", 0)
        assert (reply.status, reply.state) == self.model.claim(claim_id, seen, force, marks)
        assert reply.number == drawn
        assert (reply.kind, reply.attempts) == (why if reply.status == 3 else ("", 0))
        record = self.model.record
        assert reply.claim_number == (record.claim_number if record and reply.status != 2 else 0)
        if reply.status != 2:
            left_us = record.until - reply.now_us
            assert abs(reply.left_seconds * 1e6 - max(0, left_us)) < 60e6

    def _is_queued_under(self, claim_id: str) -> bool:
        return bool(self.model.record and (self.model.record.state, self.model.record.claim) == ("queued", claim_id))

    def _acquire(self, nonce: bytes, number: int, ticket: str) -> None:
        reply = self.world.acquire(nonce, number=number, ticket=ticket)
        self.model.now = reply.now_us
        assert (reply.status, reply.state, reply.token) == self.model.acquire(nonce, number, ticket)
        if reply.status == ACQUIRED:
            record = self.model.record
            assert (reply.generation, reply.bookmarks) == (record.generation, record.bookmarks)
            if (reply.token, nonce) not in self.began:
                self.runs.append((reply.token, nonce))
                self.began[reply.token, nonce] = len(self.calls)

    def _commit(self, token: int, nonce: bytes) -> None:
        self.status = self.world.commit(token, nonce)
        assert self.status == self.model.commit(token, nonce)

    def _renew(self, token: int, nonce: bytes) -> None:
        left_seconds = self.world.renew(token, nonce)
        assert (left_seconds > 0) == self.model.renew(token, nonce)
        if left_seconds > 0:
            assert abs(self.model.record.until - self.model.now - left_seconds * 1e6) < 60e6

    def _retry(self, token: int, nonce: bytes, ticket: str) -> None:
        assert self.world.retry(token, nonce, ticket) == self.model.retry(token, nonce, ticket)

    def _fail(self, token: int, nonce: bytes) -> None:
        assert self.world.fail(token, nonce) == self.model.fail(token, nonce)

    def _release(self, token: int, nonce: bytes) -> None:
        assert self.world.release(token, nonce) == self.model.release(token, nonce)

    def _hand_back(self, token: int, nonce: bytes) -> None:
        number = self.world.hand_back(token, nonce)
        assert number == (self.model.record.claim_number if self.model.hand_back(token, nonce) else 0)

    def _unclaim(self, claim_id: str) -> None:
        assert self.world.unclaim(claim_id) == self.model.unclaim(claim_id)

    def _republish(self) -> None:
        assert self.world.republish() == self.model.republish()

    def _invalidate(self, hard: bool, marks: tuple[str, ...]) -> None:
        lowest = self.model.draw()
        generation = self.world.invalidate(hard=hard, bookmarks=marks)
        # Redis' clock at that moment is not told: between this one's and the next reading of it.
        self.model.now = generation
        assert lowest <= generation <= max(lowest, self.world.now_us())
        assert self.model.invalidate(hard, marks) == generation
        self.soft_at = len(self.calls)
        if hard:
            self.hard_at = len(self.calls)

    # ── the invariants ──

    def _check_write(self, run: tuple[int, bytes], *, changed: bool) -> None:
        if not changed:
            assert self.status not in {ACCEPTED, ACCEPTED_AS_STALE} or run in self.stored
            return
        assert self.status in {ACCEPTED, ACCEPTED_AS_STALE}
        assert run == self.runs[-1], "I1: only the newest of all who ever acquired"
        assert run not in self.stored, "I1: once"
        assert self.began[run] > self.hard_at, "I3: nothing read before a hard invalidation is stored"
        assert (self.status == ACCEPTED) == (self.began[run] > self.soft_at), "I3: as stale"
        if self.status == ACCEPTED:
            assert self.world.state() in {"idle", "queued"}, "I6: the record goes with the commit"
        self.stored.add(run)

    @invariant()
    def the_entry_is_as_the_model_says(self) -> None:
        entry, expected = self.world.entry(), self.model.entry
        if expected is None:
            assert entry is None
            self.highest = self.highest if self.model.record else 0
            return
        assert entry is not None
        assert (entry.token, entry.nonce, entry.generation) == (expected.token, expected.nonce, expected.generation)
        assert (entry.soft_expiry_us <= self.world.now_us()) == expected.stale
        assert entry.token >= self.highest, "I2: an entry's token never goes back"
        self.highest = entry.token
        if self.began[entry.token, entry.nonce] < self.soft_at:
            assert expected.stale, "I3: read before an invalidation, so not fresh"
        assert self.began[entry.token, entry.nonce] > self.hard_at, "I3: gone with a hard one"

    @invariant()
    def the_record_is_as_the_model_says(self) -> None:
        raw, expected = self.world.record(), self.model.record
        assert [name for name in NUMBERS & raw.keys() if not raw[name].isdigit()] == [], "no scientific notation"
        if expected is None:
            assert raw == {}
            return
        there = {name: int(raw.get(name, 0)) for name in NUMBERS}
        run = expected.run
        assert there["token"] == (run.token if run else 0)
        assert raw.get("nonce", b"") == (run.nonce if run else b"")
        claim = expected.claim.encode() if isinstance(expected.claim, str) else expected.claim
        assert (raw["state"].decode(), raw.get("claim", b"")) == (expected.state, claim)
        for name in ("number", "claim_number", "generation", "hard"):
            assert there[name] == getattr(expected, name), name
        assert raw.get("ticket", b"").decode() == expected.ticket
        assert raw.get("ended_by", b"") == expected.failed_by
        assert (raw.get("kind", b"").decode(), there["attempts"]) == expected.why
        assert raw.get("bookmarks", b"").decode() == "\n".join(expected.bookmarks)
        assert abs(there["until"] - expected.until) < 10e6
        assert abs(there["limit"] - (run.limit if run else 0)) < 10e6

    @invariant()
    def nothing_stays_for_ever(self) -> None:
        for key in (self.world.key.entry, self.world.key.record):
            assert self.client.pttl(key) != -1, "I6: everything has a TTL"

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.client.delete(self.world.key.entry, self.world.key.record)


def test_the_scripts_do_what_the_model_says_and_keep_the_invariants(redis_server: RedisServer) -> None:
    with redis.Redis.from_url(redis_server.url()) as client:
        machine = type("Machine", (LeaseMachine,), {"client": client, "store": LeaseStore(client)})
        run_state_machine_as_test(machine, settings=settings(max_examples=EXAMPLES, stateful_step_count=STEPS))
