"""The checker of histories reports each broken rule; that valid ones pass, the tests that record them show."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import hiredis
import msgspec
import pytest

from api_client.protocol import lease
from api_client.protocol.entry import encode
from api_client.protocol.keys import make_key
from api_client.protocol.lease import Call
from api_client.transport.scripts import by_hash
from tests.support.history import Exchange, Happened, History, key_in, name_of
from tests.support.history_checker import check_history
from tests.support.lease_world import a_header

KEY = make_key("test", "query", {"n": 1}, 1)
LONG_SECONDS = 1_000.0


@dataclass
class HistoryBuilder:
    """A constructed history; ``at`` is its clock, which begins so long ago that everything has expired by now."""

    history: History = field(default_factory=History)
    at: float = field(default_factory=lambda: time.monotonic() - 1e6)

    def step(self, call: Call[Any], reply: Any) -> Self:
        words = tuple(word if isinstance(word, bytes) else str(word).encode() for word in by_hash(call))
        self.history.events.append(Exchange(name_of(words), words, self.at, self.at + 0.001, reply))
        return self.passes(0.01)

    def passes(self, seconds: float) -> Self:
        self.at += seconds
        return self

    def claim(self, number: int) -> Self:
        call = lease.claim(
            KEY, claim_id=f"claim-{number}", seen_token=None, queue_ttl_seconds=LONG_SECONDS, retention_seconds=60
        )
        return self.step(call, [1, b"queued", b"1", b"", 0, b"%d" % number, b"%d" % number, b"1"])

    def acquire(self, token: int, *, lease_seconds: float = LONG_SECONDS, ticket: str = "") -> Self:
        call = lease.acquire(
            KEY, nonce=nonce(token), claim_number=0, ticket=ticket, lease_seconds=lease_seconds,
            limit_seconds=LONG_SECONDS, retention_seconds=60,
        )  # fmt: skip
        left_us = round(lease_seconds * 1e6)
        return self.step(call, [1, b"running", b"%d" % left_us, b"%d" % token, b"1", b"1", b"0", b"", b""])

    def commit(self, token: int, *, version: int = 0) -> Self:
        entry = an_entry(token, version)
        call = lease.commit(
            KEY, token=token, nonce=nonce(token), entry=entry, hard_ttl_seconds=60, retention_seconds=60
        )
        return self.step(call, 1)

    def fail(self, token: int) -> Self:
        call = lease.fail(
            KEY, token=token, nonce=nonce(token), cooling_seconds=LONG_SECONDS, kind="syntax", attempts=1,
            retention_seconds=60,
        )  # fmt: skip
        return self.step(call, 1)

    def retry(self, token: int) -> Self:
        call = lease.retry(
            KEY, token=token, nonce=nonce(token), ticket="ticket", pause_seconds=LONG_SECONDS, kind="timeout",
            attempts=1, retention_seconds=60,
        )  # fmt: skip
        return self.step(call, 1)

    def hand_back_without_memory(self, token: int) -> Self:
        call = lease.hand_back(
            KEY, token=token, nonce=nonce(token), queue_ttl_seconds=LONG_SECONDS, retention_seconds=60
        )
        return self.step(call, hiredis.ReplyError("OOM"))

    def renew(self, token: int) -> Self:
        return self.step(lease.renew(KEY, token=token, nonce=nonce(token), lease_seconds=1), b"1000000")

    def invalidate(self, generation: int) -> Self:
        return self.step(lease.invalidate(KEY, hard=False, bookmarks=(), retention_seconds=60), b"%d" % generation)

    def begins_now(self) -> Self:
        self.at = time.monotonic()
        return self

    def happens(self, what: Happened) -> Self:
        self.history.note(what)
        return self

    def wrote(self, version: int) -> Self:
        self.history.note(Happened.WROTE, key=key_in(KEY.entry), version=version)
        return self


def nonce(token: int) -> bytes:
    return f"nonce-{token:02}".encode()


def an_entry(token: int, version: int) -> bytes:
    header = a_header(token, nonce(token))
    return encode(header, KEY.digest, msgspec.msgpack.encode({"version": version}))


Build = Callable[[HistoryBuilder], HistoryBuilder]

FAULTS: list[tuple[str, Build]] = [
    ("claimed while queued", lambda it: it.claim(1).claim(2)),
    ("claimed while running", lambda it: it.acquire(2).hand_back_without_memory(2).claim(3)),
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
    ("stored: token 2 is from before invalidation 3", lambda it: it.acquire(2).invalidate(3).commit(2)),
    (
        "stored: token 2 is after invalidation 1, but has version 6 where 7 was written",
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


@pytest.mark.parametrize(("fault", "build"), FAULTS)
def test_a_broken_rule_is_a_fault(fault: str, build: Build) -> None:
    assert any(fault in text for text in check_history(build(HistoryBuilder()).history).faults)
