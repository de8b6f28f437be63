"""One key of the cache and all steps on it, on a real Redis: for tests that play reader and worker.

On a Redis that uses the machine's clock, time passes by moving the deadlines inside the record into the past; the
durations here are so long that the test's own time never matters. `movable_clock` has a Redis whose clock tests move.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from api_client.protocol import lease
from api_client.protocol.entry import Header, Smoothed, UnreadableEntry, decode_header, encode
from api_client.protocol.keys import CacheKey, make_key
from api_client.protocol.lease import AcquireReply, Call, ClaimReply, CommitStatus, FailReply
from api_client.transport.redis_py import node_of
from api_client.transport.scripts import LeaseStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import redis

    from tests.support.movable_clock import MovableClock

LEASE_SECONDS = 1_000.0
LIMIT_SECONDS = 3_000.0
QUEUE_TTL_SECONDS = 6_000.0
COOLING_SECONDS = 2_000.0
MAX_COOLING_SECONDS = 7_000.0
PAUSE_SECONDS = 2_500.0
REPUBLISH_SECONDS = 1_000.0
RETENTION_SECONDS = 60_000.0
TTL_SECONDS = 100_000.0
HARD_TTL_SECONDS = 200_000.0
DEADLINES = ("since", "until", "limit", "published")
FOREIGN_ENTRIES: dict[str, Callable[[bytes], bytes]] = {
    # Of another release: its frozen fields are at the same places as ours.
    "older": lambda raw: raw[:2] + b"\x00" + raw[3:],
    "newer": lambda raw: raw[:2] + b"\x09" + raw[3:],
    "text": lambda _: b"hello" * 30,
    "cut": lambda raw: raw[:51],
    "number": lambda raw: raw[:20] + b"\xff" * 8 + raw[28:],
}
PAYLOAD = b"\xa5value"

_numbers = itertools.count(1)


def a_header(token: int, nonce: bytes = b"nonce--0", **changes: Any) -> Header:
    """Return a header as a worker would make it; by default fresh for a long time."""
    fields: dict[str, Any] = {
        "token": token, "generation": 0, "soft_expiry_us": token + int(TTL_SECONDS * 1e6), "nonce": nonce,
        "read_started_us": token, "fetched_at_us": token, "ttl_seconds": TTL_SECONDS,
        "delta": Smoothed(0.5, 0.25), "run": Smoothed(0.25, 0.125), "beta": 1.0, "degree": 0, "sigma": 1.0,
    }  # fmt: skip
    return Header(**(fields | changes))


@dataclass(frozen=True, slots=True)
class StepSnapshot:
    """Entry and record of a key. ``raw_entry`` is an error of Redis if the key has another type; ms are PTTL's."""

    raw_entry: bytes | redis.ResponseError | None
    record: dict[str, bytes]
    entry_ms: int
    record_ms: int


@dataclass(slots=True)
class World:
    """One key, its entry and its record. A step takes its caller's arguments; durations are long."""

    client: redis.Redis
    store: LeaseStore
    key: CacheKey = field(default_factory=lambda: make_key("test", "query", {"n": next(_numbers)}, 1))

    def claim(
        self, claim_id: str = "claim-1", *, seen: int | None = None, force: bool = False, bookmarks: Sequence[str] = ()
    ) -> ClaimReply:
        return self.store.run(claim_call(self.key, claim_id, seen=seen, force=force, bookmarks=bookmarks))

    def acquire(
        self, nonce: bytes = b"nonce--1", *, number: int = 0, ticket: str = "", in_place: bool = False
    ) -> AcquireReply:
        return self.store.run(acquire_call(self.key, nonce, number=number, ticket=ticket, in_place=in_place))

    def commit(self, token: int, nonce: bytes = b"nonce--1", **changes: Any) -> CommitStatus:
        return self.store.run(commit_call(self.key, token, nonce, **changes))

    def prolong(self, token: int, nonce: bytes, previous: bytes, **changes: Any) -> CommitStatus:
        header = encode(a_header(token, nonce, **changes), self.key.digest, b"")
        return self.store.run(
            lease.commit(
                self.key, token=token, nonce=nonce, entry=header, hard_ttl_seconds=HARD_TTL_SECONDS,
                retention_seconds=RETENTION_SECONDS, prolongs=previous,
            )
        )  # fmt: skip

    def renew(self, token: int, nonce: bytes = b"nonce--1", lease_seconds: float = LEASE_SECONDS) -> float:
        return self.store.run(lease.renew(self.key, token=token, nonce=nonce, lease_seconds=lease_seconds))

    def retry(self, token: int, nonce: bytes = b"nonce--1", ticket: str = "ticket-1") -> bool:
        return self.store.run(retry_call(self.key, token, nonce, ticket))

    def fail(
        self, token: int, nonce: bytes = b"nonce--1", bookmarks: lease.BookmarkFault = lease.BookmarkFault.NONE
    ) -> bool:
        return self.store.run(fail_call(self.key, token, nonce, bookmarks)) is not None

    def hand_back(self, token: int, nonce: bytes = b"nonce--1") -> int:
        return self.store.run(hand_back_call(self.key, token, nonce))

    def unclaim(self, claim_id: str | bytes = "claim-1", forget: bool = False) -> bool:
        return self.store.run(
            lease.unclaim(self.key, claim_id=claim_id, retention_seconds=RETENTION_SECONDS, forget_failures=forget)
        )

    def republish(self) -> int:
        return self.store.run(lease.republish(self.key, interval_seconds=REPUBLISH_SECONDS))

    def invalidate(self, *, hard: bool = False, bookmarks: Sequence[str] = ()) -> int:
        return self.store.run(
            lease.invalidate(self.key, hard=hard, bookmarks=bookmarks, retention_seconds=RETENTION_SECONDS)
        )

    def pass_time(self, seconds: float) -> None:
        """Move the record's deadlines into the past."""
        record = self.record()
        moved = {name: int(record[name]) - int(seconds * 1e6) for name in DEADLINES if int(record.get(name, 0)) > 0}
        if moved:
            self.client.hset(self.key.record, mapping=moved)

    def plant(self, token: int, **changes: Any) -> None:
        """Store an entry, as if it had been committed long ago."""
        raw = encode(a_header(token, **changes), self.key.digest, PAYLOAD)
        self.client.set(self.key.entry, raw, px=int(HARD_TTL_SECONDS * 1000))

    def plant_foreign(self, kind: str, token: int, **changes: Any) -> None:
        """Store an entry that this release would not have written."""
        self.plant(token, **changes)
        raw = FOREIGN_ENTRIES[kind](self.client.get(self.key.entry))
        self.client.set(self.key.entry, raw, keepttl=True)

    def record(self) -> dict[str, bytes]:
        return {name.decode(): value for name, value in self.client.hgetall(self.key.record).items()}

    def state(self) -> str:
        return self.record().get("state", b"idle").decode()

    def entry(self) -> Header | None:
        raw = self.client.get(self.key.entry)
        try:
            return None if raw is None else decode_header(raw, self.key.digest)
        except UnreadableEntry:
            return None

    def look(self) -> StepSnapshot:
        """Return entry and record as they are now, in one round trip."""
        with node_of(self.client, self.key.entry).pipeline(transaction=False) as pipeline:
            queue_snapshot(pipeline, self.key)
            return parse_snapshot(pipeline.execute(raise_on_error=False))

    def now_us(self) -> int:
        whole_seconds, microseconds = node_of(self.client, self.key.entry).time()
        return whole_seconds * 1_000_000 + microseconds


@dataclass(slots=True, kw_only=True)
class ClockedWorld(World):
    """The same on a Redis whose clock the test moves."""

    clock: MovableClock

    def pass_time(self, seconds: float) -> None:
        """Move Redis' clock forward, or with a negative time back."""
        self.at(self.clock.now_us + round(seconds * 1e6))

    def at(self, now_us: int) -> None:
        """Set Redis' clock, and expire keys by it now."""
        self.clock.now_us = now_us
        self.look()


def queue_snapshot(pipeline: redis.client.Pipeline, key: CacheKey) -> None:
    pipeline.get(key.entry).hgetall(key.record).pttl(key.entry).pttl(key.record)


def parse_snapshot(replies: Sequence[Any]) -> StepSnapshot:
    """Parse the replies to `queue_snapshot`."""
    raw, record, entry_ms, record_ms = replies
    return StepSnapshot(raw, {name.decode(): value for name, value in record.items()}, entry_ms, record_ms)


def claim_call(
    key: CacheKey, claim_id: str, *, seen: int | None, force: bool, bookmarks: Sequence[str]
) -> Call[ClaimReply]:
    return lease.claim(
        key, claim_id=claim_id, seen_token=seen, queue_ttl_seconds=QUEUE_TTL_SECONDS,
        retention_seconds=RETENTION_SECONDS, force=force, bookmarks=bookmarks,
    )  # fmt: skip


def acquire_call(
    key: CacheKey, nonce: bytes, *, number: int, ticket: str, in_place: bool = False
) -> Call[AcquireReply]:
    return lease.acquire(
        key, nonce=nonce, claim_number=number, ticket=ticket, lease_seconds=LEASE_SECONDS,
        limit_seconds=LIMIT_SECONDS, retention_seconds=RETENTION_SECONDS, in_place=in_place,
    )  # fmt: skip


def commit_call(key: CacheKey, token: int, nonce: bytes, **changes: Any) -> Call[CommitStatus]:
    return lease.commit(
        key, token=token, nonce=nonce, entry=encode(a_header(token, nonce, **changes), key.digest, PAYLOAD),
        hard_ttl_seconds=HARD_TTL_SECONDS, retention_seconds=RETENTION_SECONDS,
    )  # fmt: skip


def retry_call(key: CacheKey, token: int, nonce: bytes, ticket: str) -> Call[bool]:
    return lease.retry(
        key, token=token, nonce=nonce, ticket=ticket, pause_seconds=PAUSE_SECONDS, kind="timeout", attempts=1,
        retention_seconds=RETENTION_SECONDS,
    )  # fmt: skip


def fail_call(
    key: CacheKey, token: int, nonce: bytes, bookmarks: lease.BookmarkFault = lease.BookmarkFault.NONE
) -> Call[FailReply | None]:
    return lease.fail(
        key, token=token, nonce=nonce, cooling_seconds=COOLING_SECONDS, kind="syntax", attempts=2,
        retention_seconds=RETENTION_SECONDS, bookmarks=bookmarks,
    )  # fmt: skip


def hand_back_call(key: CacheKey, token: int, nonce: bytes) -> Call[int]:
    return lease.hand_back(
        key, token=token, nonce=nonce, queue_ttl_seconds=QUEUE_TTL_SECONDS, retention_seconds=RETENTION_SECONDS
    )
