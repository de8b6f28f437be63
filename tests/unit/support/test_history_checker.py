"""The judge of histories: a good one passes, and each rule is broken once and complains."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import hiredis
import msgspec
import pytest

from api_client.protocol import lease
from api_client.protocol.entry import Header, Smoothed, encode
from api_client.protocol.keys import make_key
from api_client.protocol.lease import Call
from api_client.transport.scripts import by_hash
from tests.support.history import PENDING, Exchange, Happened, History, key_in, name_of
from tests.support.history_checker import Verdict, check_history

KEY = make_key("test", "query", {"n": 1}, 1)
TAG = key_in(KEY.entry)
NONCES = {number: f"nonce-{number:02}".encode() for number in range(100)}
LONG_SECONDS = 1_000.0


@dataclass
class HistoryBuilder:
    """A history made by hand; ``at`` is the clock, and begins so long ago that all has run out by now."""

    history: History = field(default_factory=History)
    at: float = field(default_factory=lambda: time.monotonic() - 1e6)

    def step(self, call: Call[Any], reply: Any) -> Exchange:
        words = tuple(word if isinstance(word, bytes) else str(word).encode() for word in by_hash(call))
        exchange = Exchange(name_of(words), words, self.at, self.at + 0.001, reply)
        self.history.events.append(exchange)
        self.at += 0.01
        return exchange

    def passes(self, seconds: float) -> None:
        self.at += seconds

    def claim(self, number: int, claim_id: str = "", *, status: int = 1, ttl: float = LONG_SECONDS) -> None:
        call = lease.claim(
            KEY, claim_id=claim_id or f"claim-{number}", seen_token=None, queue_ttl_seconds=ttl, retention_seconds=60
        )
        self.step(call, [status, b"queued", b"1", b"", 0, b"%d" % number, b"%d" % number, b"1"])

    def acquire(
        self, token: int, *, status: int = 1, number: int = 0, lease_seconds: float = LONG_SECONDS, ticket: str = ""
    ) -> None:
        call = lease.acquire(
            KEY, nonce=NONCES[token], claim_number=number, ticket=ticket, lease_seconds=lease_seconds,
            limit_seconds=LONG_SECONDS, retention_seconds=60,
        )  # fmt: skip
        left_us = round(lease_seconds * 1e6)
        self.step(call, [status, b"running", b"%d" % left_us, b"%d" % token, b"1", b"1", b"0", b"", b""])

    def commit(self, token: int, status: Any = 1, *, version: int = 0) -> None:
        call = lease.commit(
            KEY,
            token=token,
            nonce=NONCES[token],
            entry=an_entry(token, version),
            hard_ttl_seconds=60,
            retention_seconds=60,
        )
        self.step(call, status)

    def fail(self, token: int, done: int = 1) -> None:
        call = lease.fail(
            KEY, token=token, nonce=NONCES[token], cooling_seconds=LONG_SECONDS, kind="syntax", attempts=1,
            retention_seconds=60,
        )  # fmt: skip
        self.step(call, done)

    def retry(self, token: int, ticket: str = "ticket") -> None:
        call = lease.retry(
            KEY, token=token, nonce=NONCES[token], ticket=ticket, pause_seconds=LONG_SECONDS, kind="timeout",
            attempts=1, retention_seconds=60,
        )  # fmt: skip
        self.step(call, 1)

    def hand_back(self, token: int) -> None:
        call = lease.hand_back(
            KEY, token=token, nonce=NONCES[token], queue_ttl_seconds=LONG_SECONDS, retention_seconds=60
        )
        self.step(call, [1, b"1"])

    def invalidate(self, generation: int) -> None:
        self.step(lease.invalidate(KEY, hard=False, bookmarks=(), retention_seconds=60), b"%d" % generation)

    def wrote(self, version: int) -> None:
        self.history.note(Happened.WROTE, key=TAG, version=version)

    def verdict(self) -> Verdict:
        return check_history(self.history)


def an_entry(token: int, version: int) -> bytes:
    header = Header(
        token=token, generation=0, soft_expiry_us=token, nonce=NONCES[token], read_started_us=token,
        fetched_at_us=token, ttl_seconds=1, delta=Smoothed(1, 0), run=Smoothed(1, 0), beta=1.0, degree=0, sigma=1.0,
    )  # fmt: skip
    return encode(header, KEY.digest, msgspec.msgpack.encode({"version": version}))


@pytest.fixture
def builder() -> HistoryBuilder:
    return HistoryBuilder()


def outcomes(verdict: Verdict) -> tuple[list[str], list[str]]:
    assert verdict.faults == []
    return verdict.claims[TAG], verdict.runs[TAG]


def fault(builder: HistoryBuilder) -> str:
    (only,) = builder.verdict().faults
    return only


def test_a_claim_that_is_committed(builder: HistoryBuilder) -> None:
    builder.claim(1)
    builder.acquire(2, number=1)
    builder.commit(2)
    assert outcomes(builder.verdict()) == (["committed"], ["committed"])


def test_what_is_repeated_because_its_reply_was_lost_counts_once(builder: HistoryBuilder) -> None:
    for _ in range(2):
        builder.claim(1)
    for _ in range(2):
        builder.acquire(2, number=1)
    for _ in range(2):
        builder.commit(2)
    assert outcomes(builder.verdict()) == (["committed"], ["committed"])


def test_a_retry_and_a_hand_over_go_on_in_other_runs_of_the_claim(builder: HistoryBuilder) -> None:
    builder.claim(1)
    builder.acquire(2, number=1)
    builder.retry(2)
    builder.acquire(3, number=1, ticket="ticket")
    builder.hand_back(3)
    builder.acquire(4, number=1)
    builder.fail(4)
    assert outcomes(builder.verdict()) == (
        ["failed (syntax)"],
        ["retried (timeout)", "handed over", "failed (syntax)"],
    )


def test_a_lease_that_ran_out_and_a_late_commit_that_is_refused(builder: HistoryBuilder) -> None:
    builder.claim(1)
    builder.acquire(2, number=1, lease_seconds=1)
    builder.passes(2)
    builder.claim(3)
    builder.acquire(4, number=3)
    builder.commit(2, status=3)
    builder.commit(4)
    assert outcomes(builder.verdict()) == (
        ["rejected (superseded)", "committed"],
        ["rejected (superseded)", "committed"],
    )


def test_a_claim_and_a_run_that_nobody_ended_have_expired(builder: HistoryBuilder) -> None:
    builder.claim(1, ttl=1)
    builder.passes(2)
    builder.claim(2)
    builder.acquire(3, number=2)
    assert outcomes(builder.verdict()) == (["expired", "expired"], ["expired"])


def test_a_message_with_nothing_to_do_is_skipped(builder: HistoryBuilder) -> None:
    builder.claim(1, ttl=1)
    builder.acquire(2, status=2, number=1)
    assert outcomes(builder.verdict()) == (["skipped (already_fresh)"], [])
    assert builder.verdict().skipped == {"skipped (already_fresh)": 1}


def test_a_claim_that_was_taken_back(builder: HistoryBuilder) -> None:
    builder.claim(1, "mine")
    builder.step(lease.unclaim(KEY, claim_id="mine", retention_seconds=60), 1)
    assert outcomes(builder.verdict()) == (["withdrawn"], [])


def test_a_server_that_lost_its_data_loses_the_runs(builder: HistoryBuilder) -> None:
    builder.claim(1)
    builder.acquire(2, number=1)
    builder.history.note(Happened.EMPTIED)
    builder.claim(3)
    builder.acquire(4, number=3)
    builder.commit(4)
    assert outcomes(builder.verdict()) == (["lost", "committed"], ["lost", "committed"])


def test_what_is_not_answered_may_have_been_done(builder: HistoryBuilder) -> None:
    builder.claim(1)
    builder.acquire(2, number=1)
    builder.commit(2, PENDING)
    builder.claim(3)
    assert builder.verdict().faults == []


def test_what_is_refused_with_an_error_was_not_done(builder: HistoryBuilder) -> None:
    builder.claim(1)
    builder.acquire(2, number=1)
    back = lease.hand_back(KEY, token=2, nonce=NONCES[2], queue_ttl_seconds=5, retention_seconds=60)
    builder.step(back, hiredis.ReplyError("OOM"))
    builder.claim(3)
    assert "claimed while running" in fault(builder)


def test_two_claims_at_once(builder: HistoryBuilder) -> None:
    builder.claim(1)
    builder.claim(2)
    assert "claimed while queued" in fault(builder)


def test_two_runs_at_once(builder: HistoryBuilder) -> None:
    builder.acquire(2)
    builder.acquire(3)
    assert "acquired while running" in fault(builder)


def test_a_cooling_key_is_acquired(builder: HistoryBuilder) -> None:
    builder.acquire(2)
    builder.fail(2)
    builder.acquire(3)
    assert "acquired while cooling" in fault(builder)


def test_a_retry_without_its_ticket(builder: HistoryBuilder) -> None:
    builder.acquire(2)
    builder.retry(2)
    builder.acquire(3, ticket="another")
    assert "acquired while retrying" in fault(builder)


def test_a_renewed_lease_is_held_for_longer(builder: HistoryBuilder) -> None:
    builder.acquire(2, lease_seconds=1)
    builder.passes(0.9)
    builder.step(lease.renew(KEY, token=2, nonce=NONCES[2], lease_seconds=1), b"1000000")
    builder.passes(0.9)
    builder.acquire(3)
    assert "acquired while running" in fault(builder)


def test_a_token_that_was_drawn_before(builder: HistoryBuilder) -> None:
    builder.acquire(3, lease_seconds=1)
    builder.passes(2)
    builder.acquire(2)
    assert "token 2 is not above" in fault(builder)


def test_a_commit_by_one_who_is_not_the_newest(builder: HistoryBuilder) -> None:
    builder.acquire(2, lease_seconds=1)
    builder.passes(2)
    builder.acquire(3)
    builder.commit(2)
    assert "token 2 committed, though 3 has acquired" in fault(builder)


def test_an_older_token_over_a_newer_one(builder: HistoryBuilder) -> None:
    builder.acquire(2, lease_seconds=1)
    builder.passes(2)
    builder.acquire(3)
    builder.commit(3)
    builder.commit(2)
    assert any("token 2 committed after 3" in text for text in builder.verdict().faults)


def test_a_commit_without_an_acquire(builder: HistoryBuilder) -> None:
    builder.commit(2)
    assert "nobody acquired" in fault(builder)


def test_a_commit_after_the_record_was_lost(builder: HistoryBuilder) -> None:
    builder.acquire(2)
    builder.history.note(Happened.EMPTIED)
    builder.commit(2)
    assert "though its record was lost" in fault(builder)


def test_two_ends_of_one_run(builder: HistoryBuilder) -> None:
    builder.acquire(2)
    builder.fail(2)
    builder.commit(2)
    assert "ended as failed (syntax) and as committed" in fault(builder)


def test_a_refusal_after_the_end_is_no_second_end(builder: HistoryBuilder) -> None:
    builder.acquire(2)
    builder.commit(2)
    builder.fail(2, done=0)
    assert outcomes(builder.verdict())[1] == ["committed"]


def test_a_value_read_before_an_invalidation_stored_as_fresh(builder: HistoryBuilder) -> None:
    builder.acquire(2)
    builder.invalidate(3)
    builder.commit(2)
    assert "stored as fresh, though invalidated at 3" in fault(builder)


def test_the_same_stored_as_stale_is_right(builder: HistoryBuilder) -> None:
    builder.acquire(2)
    builder.invalidate(3)
    builder.commit(2, status=2)
    assert outcomes(builder.verdict())[1] == ["committed (as stale)"]


def test_an_old_version_stored_as_fresh(builder: HistoryBuilder) -> None:
    builder.wrote(7)
    builder.invalidate(1)
    builder.acquire(2)
    builder.commit(2, version=6)
    assert "version 6 stored as fresh, though 7 was invalidated for" in fault(builder)


def test_a_version_that_nobody_has_invalidated_for_yet(builder: HistoryBuilder) -> None:
    builder.wrote(7)
    builder.acquire(2)
    builder.commit(2, version=6)
    assert builder.verdict().faults == []


def test_a_run_that_is_still_under_way(builder: HistoryBuilder) -> None:
    builder.at = time.monotonic()
    builder.acquire(2)
    assert "token 2 has neither ended nor run out" in builder.verdict().faults[0]


def test_a_claim_that_still_waits(builder: HistoryBuilder) -> None:
    builder.at = time.monotonic()
    builder.claim(1)
    assert "claim 1 has neither ended nor run out" in fault(builder)


def test_where_records_are_evicted_anyone_may_claim(builder: HistoryBuilder) -> None:
    builder.history.note(Happened.RECORDS_EVICTED)
    builder.claim(1)
    builder.claim(2)
    assert builder.verdict().faults == []
    builder.history.note(Happened.EVICTION_ENDED)
    builder.claim(3)
    builder.claim(4)
    assert "claimed while queued" in fault(builder)


def test_a_clock_that_was_set_ends_what_was_held(builder: HistoryBuilder) -> None:
    builder.acquire(2)
    builder.history.note(Happened.CLOCK_MOVED)
    builder.acquire(3)
    assert builder.verdict().faults == []


def test_after_a_failover_an_older_state_is_no_fault(builder: HistoryBuilder) -> None:
    builder.acquire(2)
    builder.history.note(Happened.ROLLED_BACK)
    builder.acquire(3)
    builder.commit(3)
    assert builder.verdict().faults == []
