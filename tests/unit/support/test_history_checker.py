"""The checker of histories: valid ones pass, and each broken rule is reported."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

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
    """A constructed history; ``at`` is its clock, which begins so long ago that everything has expired by now."""

    history: History = field(default_factory=History)
    at: float = field(default_factory=lambda: time.monotonic() - 1e6)

    def step(self, call: Call[Any], reply: Any) -> Exchange:
        words = tuple(word if isinstance(word, bytes) else str(word).encode() for word in by_hash(call))
        exchange = Exchange(name_of(words), words, self.at, self.at + 0.001, reply)
        self.history.events.append(exchange)
        self.at += 0.01
        return exchange

    def passes(self, seconds: float) -> Self:
        self.at += seconds
        return self

    def claim(self, number: int, *, ttl: float = LONG_SECONDS) -> Self:
        call = lease.claim(
            KEY, claim_id=f"claim-{number}", seen_token=None, queue_ttl_seconds=ttl, retention_seconds=60
        )
        self.step(call, [1, b"queued", b"1", b"", 0, b"%d" % number, b"%d" % number, b"1"])
        return self

    def acquire(
        self, token: int, *, status: int = 1, number: int = 0, lease_seconds: float = LONG_SECONDS, ticket: str = ""
    ) -> Self:
        call = lease.acquire(
            KEY, nonce=NONCES[token], claim_number=number, ticket=ticket, lease_seconds=lease_seconds,
            limit_seconds=LONG_SECONDS, retention_seconds=60,
        )  # fmt: skip
        left_us = round(lease_seconds * 1e6)
        self.step(call, [status, b"running", b"%d" % left_us, b"%d" % token, b"1", b"1", b"0", b"", b""])
        return self

    def acquire_again(self, token: int, first: int) -> Self:
        """Repeat an acquire whose reply was lost; its token, ``first``, was lost with its record."""
        call = lease.acquire(
            KEY, nonce=NONCES[first], claim_number=0, ticket="", lease_seconds=LONG_SECONDS, limit_seconds=LONG_SECONDS,
            retention_seconds=60,
        )  # fmt: skip
        self.step(call, [1, b"running", b"1000000", b"%d" % token, b"1", b"1", b"0", b"", b""])
        step = lease.commit(
            KEY, token=token, nonce=NONCES[first], entry=an_entry(token, 0), hard_ttl_seconds=60, retention_seconds=60
        )
        self.step(step, 1)
        return self

    def commit(self, token: int, status: Any = 1, *, version: int = 0) -> Self:
        call = lease.commit(
            KEY,
            token=token,
            nonce=NONCES[token],
            entry=an_entry(token, version),
            hard_ttl_seconds=60,
            retention_seconds=60,
        )
        self.step(call, status)
        return self

    def fail(self, token: int, done: int = 1) -> Self:
        call = lease.fail(
            KEY, token=token, nonce=NONCES[token], cooling_seconds=LONG_SECONDS, kind="syntax", attempts=1,
            retention_seconds=60,
        )  # fmt: skip
        self.step(call, done)
        return self

    def retry(self, token: int, ticket: str = "ticket") -> Self:
        call = lease.retry(
            KEY, token=token, nonce=NONCES[token], ticket=ticket, pause_seconds=LONG_SECONDS, kind="timeout",
            attempts=1, retention_seconds=60,
        )  # fmt: skip
        self.step(call, 1)
        return self

    def hand_back(self, token: int, reply: Any = (1, b"1")) -> Self:
        call = lease.hand_back(
            KEY, token=token, nonce=NONCES[token], queue_ttl_seconds=LONG_SECONDS, retention_seconds=60
        )
        self.step(call, reply)
        return self

    def renew(self, token: int) -> Self:
        self.step(lease.renew(KEY, token=token, nonce=NONCES[token], lease_seconds=1), b"1000000")
        return self

    def unclaim(self, number: int) -> Self:
        self.step(lease.unclaim(KEY, claim_id=f"claim-{number}", retention_seconds=60), 1)
        return self

    def begins_now(self) -> Self:
        self.at = time.monotonic()
        return self

    def invalidate(self, generation: int) -> Self:
        self.step(lease.invalidate(KEY, hard=False, bookmarks=(), retention_seconds=60), b"%d" % generation)
        return self

    def happens(self, what: Happened) -> Self:
        self.history.note(what)
        return self

    def wrote(self, version: int) -> Self:
        self.history.note(Happened.WROTE, key=TAG, version=version)
        return self

    def verdict(self) -> Verdict:
        return check_history(self.history)


def an_entry(token: int, version: int) -> bytes:
    header = Header(
        token=token, generation=0, soft_expiry_us=token, nonce=NONCES[token], read_started_us=token,
        fetched_at_us=token, ttl_seconds=1, delta=Smoothed(1, 0), run=Smoothed(1, 0), beta=1.0, degree=0, sigma=1.0,
    )  # fmt: skip
    return encode(header, KEY.digest, msgspec.msgpack.encode({"version": version}))


Build = Callable[[HistoryBuilder], HistoryBuilder]

OUTCOMES: dict[str, tuple[Build, list[str], list[str]]] = {
    "a claim that is committed": (
        lambda it: it.claim(1).acquire(2, number=1).commit(2),
        ["committed"],
        ["committed"],
    ),
    "a step repeated after its reply was lost counts once": (
        lambda it: it.claim(1).claim(1).acquire(2, number=1).acquire(2, number=1).commit(2).commit(2),
        ["committed"],
        ["committed"],
    ),
    "a retry and a hand-over continue in other runs of the claim": (
        lambda it: (
            it.claim(1)
            .acquire(2, number=1).retry(2)
            .acquire(3, number=1, ticket="ticket").hand_back(3)
            .acquire(4, number=1).fail(4)
        ),
        ["failed (syntax)"],
        ["retried (timeout)", "handed over", "failed (syntax)"],
    ),
    "a lease that expired, and a late commit that is refused": (
        lambda it: (
            it.claim(1).acquire(2, number=1, lease_seconds=1).passes(2)
            .claim(3).acquire(4, number=3)
            .commit(2, status=3).commit(4)
        ),
        ["rejected (superseded)", "committed"],
        ["rejected (superseded)", "committed"],
    ),
    "a claim and a run that nobody ended have expired": (
        lambda it: it.claim(1, ttl=1).passes(2).claim(2).acquire(3, number=2),
        ["expired", "expired"],
        ["expired"],
    ),
    "a message with nothing to do is skipped": (
        lambda it: it.claim(1, ttl=1).acquire(2, status=2, number=1),
        ["skipped (already_fresh)"],
        [],
    ),
    "a server that lost its data loses the runs": (
        lambda it: (
            it.claim(1).acquire(2, number=1).happens(Happened.EMPTIED)
            .claim(3).acquire(4, number=3).commit(4)
        ),
        ["lost", "committed"],
        ["lost", "committed"],
    ),
    "a claim that was taken back": (lambda it: it.claim(1).unclaim(1), ["withdrawn"], []),
    "a refusal after the end is not a second end": (
        lambda it: it.acquire(2).commit(2).fail(2, done=0),
        ["committed"],
        ["committed"],
    ),
    "a value read before an invalidation, stored as stale": (
        lambda it: it.acquire(2).invalidate(3).commit(2, status=2),
        ["committed (as stale)"],
        ["committed (as stale)"],
    ),
}  # fmt: skip

FAULTS: list[tuple[str, Build]] = [
    ("claimed while queued", lambda it: it.claim(1).claim(2)),
    ("claimed while running", lambda it: it.acquire(2).hand_back(2, hiredis.ReplyError("OOM")).claim(3)),
    ("acquired while running", lambda it: it.acquire(2).acquire(3)),
    (
        "acquired while running",
        lambda it: it.acquire(2, lease_seconds=1).passes(0.9).renew(2).passes(0.9).acquire(3)
    ),
    ("acquired while cooling", lambda it: it.acquire(2).fail(2).acquire(3)),
    ("acquired while retrying", lambda it: it.acquire(2).retry(2).acquire(3, ticket="another")),
    ("token 2 is not above", lambda it: it.acquire(3, lease_seconds=1).passes(2).acquire(2)),
    (
        "token 2 committed, though 3 has acquired",
        lambda it: it.acquire(2, lease_seconds=1).passes(2).acquire(3).commit(2)
    ),
    (
        "token 2 committed after 3",
        lambda it: it.acquire(2, lease_seconds=1).passes(2).acquire(3).commit(3).commit(2)
    ),
    ("nobody acquired", lambda it: it.commit(2)),
    ("though its record was lost", lambda it: it.acquire(2).happens(Happened.EMPTIED).commit(2)),
    ("ended as failed (syntax) and as committed", lambda it: it.acquire(2).fail(2).commit(2)),
    ("stored as fresh, though invalidated at 3", lambda it: it.acquire(2).invalidate(3).commit(2)),
    (
        "version 6 stored as fresh, though 7 was invalidated for",
        lambda it: it.wrote(7).invalidate(1).acquire(2).commit(2, version=6)
    ),
    ("token 2 has neither ended nor run out", lambda it: it.begins_now().acquire(2)),
    ("claim 1 has neither ended nor run out", lambda it: it.begins_now().claim(1)),
    (
        "claimed while queued",
        lambda it: (
            it.happens(Happened.RECORDS_EVICTED).claim(1).claim(2)
            .happens(Happened.EVICTION_ENDED).claim(3).claim(4)
        )
    ),
]  # fmt: skip

WITHOUT_FAULT: dict[str, Build] = {
    "a step without a reply may have been done": lambda it: (
        it.claim(1).acquire(2, number=1).commit(2, PENDING).claim(3)
    ),
    "a version that nobody has invalidated for yet": lambda it: it.wrote(7).acquire(2).commit(2, version=6),
    "where records are evicted anyone may claim": lambda it: it.happens(Happened.RECORDS_EVICTED).claim(1).claim(2),
    "where records are evicted the same acquire may draw anew": (
        lambda it: it.happens(Happened.RECORDS_EVICTED).claim(1).acquire(2, number=1).acquire_again(3, first=2)
    ),
    "a clock that was set ends every lease": lambda it: it.acquire(2).happens(Happened.CLOCK_MOVED).acquire(3),
    "after a failover the state is an older one": (
        lambda it: it.acquire(2).happens(Happened.ROLLED_BACK).acquire(3).commit(3)
    ),
}


@pytest.mark.parametrize(("build", "claims", "runs"), OUTCOMES.values(), ids=OUTCOMES)
def test_each_claim_and_run_has_its_outcome(build: Build, claims: list[str], runs: list[str]) -> None:
    verdict = build(HistoryBuilder()).verdict()
    assert verdict.faults == []
    assert (verdict.claims[TAG], verdict.runs[TAG]) == (claims, runs)
    assert sum(verdict.skipped.values()) == sum(claim.startswith("skipped") for claim in claims)


@pytest.mark.parametrize(("fault", "build"), FAULTS)
def test_a_broken_rule_is_a_fault(fault: str, build: Build) -> None:
    assert any(fault in text for text in build(HistoryBuilder()).verdict().faults)


@pytest.mark.parametrize("build", WITHOUT_FAULT.values(), ids=WITHOUT_FAULT)
def test_a_valid_history_has_no_fault(build: Build) -> None:
    assert build(HistoryBuilder()).verdict().faults == []
