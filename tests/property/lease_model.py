"""What design.md says about the lease record, in plain Python: the model that the scripts are held against.

No Redis and no Lua in here. A step is a call of one method; it changes the model and returns what the script must
answer. Times are µs on the model's own clock, which the test sets to Redis' before each step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.support.lease_world import (
    BUDGET_SECONDS,
    COOLING_SECONDS,
    LEASE_SECONDS,
    PAUSE_SECONDS,
    QUEUE_TTL_SECONDS,
    REPUBLISH_SECONDS,
)

CLAIMED, ALREADY_REFRESHED, REFUSED = 1, 2, 3
ACQUIRED, ALREADY_FRESH, HELD = 1, 2, 3
ACCEPTED, ACCEPTED_AS_STALE, SUPERSEDED, INVALIDATED, LOST = 1, 2, 3, 4, 5


def us(seconds: float) -> int:
    return int(seconds * 1_000_000)


@dataclass(frozen=True)
class Run:
    """Who holds, or last held, the lease."""

    token: int
    nonce: bytes
    limit: int


@dataclass(frozen=True)
class Record:
    state: str
    until: int = 0
    number: int = 0
    claim: str | bytes = ""
    claim_number: int = 0
    run: Run | None = None
    ticket: str = ""
    generation: int = 0
    hard: int = 0
    bookmarks: tuple[str, ...] = ()
    why: tuple[str, int] = ("", 0)
    failed_by: bytes = b""
    published: int = 0
    republished: int = 0


@dataclass(frozen=True)
class StoredEntry:
    token: int
    nonce: bytes
    generation: int = 0
    stale: bool = False


class Model:
    """Entry and record of one key; None is nothing there."""

    def __init__(self) -> None:
        self.now = 0
        self.record: Record | None = None
        self.entry: StoredEntry | None = None

    def draw(self) -> int:
        """The number that a step draws now: above all that is known of this key."""
        known = [self.now]
        if self.record:
            known.append(self.record.number + 1)
        if self.entry:
            known += [self.entry.token + 1, self.entry.generation + 1]
        return max(known)

    def claim(self, claim_id: str, seen: int | None, force: bool, bookmarks: tuple[str, ...]) -> tuple[int, str]:
        record = self.record
        if record and record.state == "queued" and record.claim == claim_id:
            return CLAIMED, "queued"
        number, merged = self.draw(), merge(record.bookmarks if record else (), bookmarks)
        if record:
            self.record = record = replace(record, number=number, bookmarks=merged)
        if seen is not None and self.entry and self.entry.token != seen:
            return ALREADY_REFRESHED, record.state if record else "idle"
        if record and not self._claimable(record, force):
            return REFUSED, record.state
        kept = record or Record("idle")
        self.record = replace(
            kept, state="queued", until=self.now + us(QUEUE_TTL_SECONDS), number=number, claim=claim_id,
            claim_number=number, bookmarks=merged, ticket="", why=("", 0), failed_by=b"", published=self.now,
            republished=0,
        )  # fmt: skip
        return CLAIMED, "queued"

    def _claimable(self, record: Record, force: bool) -> bool:
        if record.until <= self.now or record.state == "invalidated":
            return True
        return force and record.state == "cooling"

    def unclaim(self, claim_id: str) -> bool:
        if not (self.record and self.record.state == "queued" and self.record.claim == claim_id):
            return False
        self._rest()
        return True

    def republish(self) -> int:
        record = self.record
        if not record or record.state != "queued":
            return 0
        if self.now < record.published + us(REPUBLISH_SECONDS) * 2**record.republished:
            return 0
        self.record = replace(record, published=self.now, republished=record.republished + 1)
        return record.claim_number

    def acquire(self, nonce: bytes, number: int, ticket: str) -> tuple[int, str, int]:
        record = self.record or Record("idle")
        if record.state == "running" and record.run and record.run.nonce == nonce:
            return ACQUIRED, "running", record.run.token
        with_ticket = record.state == "retrying" and ticket != "" and ticket == record.ticket
        if record.until > self.now and record.state not in {"idle", "queued", "invalidated"} and not with_ticket:
            return HELD, record.state, 0
        asked = [number, record.generation, record.claim_number if record.state == "queued" else 0]
        if self.entry and self.entry.token > max(*asked, self.entry.generation):
            return ALREADY_FRESH, record.state, self.entry.token
        token = self.draw()
        self.record = replace(
            record, state="running", until=self.now + us(LEASE_SECONDS), number=token, claim="", ticket="",
            claim_number=max(number, record.claim_number, 1), run=Run(token, nonce, self.now + us(BUDGET_SECONDS)),
            why=("", 0), failed_by=b"",
        )  # fmt: skip
        return ACQUIRED, "running", token

    def _is_running(self, token: int, nonce: bytes) -> bool:
        run = self.record and self.record.run
        return bool(self.record and self.record.state == "running" and run and (run.token, run.nonce) == (token, nonce))

    def renew(self, token: int, nonce: bytes) -> bool:
        record = self.record
        if not self._is_running(token, nonce) or record.until <= self.now or record.run.limit <= self.now:
            return False
        self.record = replace(record, until=min(self.now + us(LEASE_SECONDS), record.run.limit))
        return True

    def commit(self, token: int, nonce: bytes) -> int:
        record, entry = self.record, self.entry
        run = record.run if record else None
        if not run or (run.token, run.nonce) != (token, nonce):
            if entry and (entry.token, entry.nonce) == (token, nonce):
                return ACCEPTED_AS_STALE if self.entry.generation > self.entry.token else ACCEPTED
            return SUPERSEDED if record else LOST
        if entry and entry.token >= token:
            return SUPERSEDED
        claimed_since = record.state == "queued"
        if record.hard > token:
            self._end_run(claimed_since)
            return INVALIDATED
        stale = record.generation > token
        self.entry = StoredEntry(token, nonce, record.generation if stale else 0, stale)
        if stale or claimed_since:
            self._end_run(claimed_since)
        else:
            self.record = None
        return ACCEPTED_AS_STALE if stale else ACCEPTED

    def _end_run(self, claimed_since: bool) -> None:
        if claimed_since:
            self.record = replace(self.record, run=None)
        else:
            self._rest()

    def _rest(self) -> None:
        record = self.record
        self.record = None
        if record.generation:
            self.record = Record(
                "invalidated", number=record.number, claim_number=record.claim_number, generation=record.generation,
                hard=record.hard, bookmarks=record.bookmarks, failed_by=record.failed_by, published=record.published,
                republished=record.republished,
            )  # fmt: skip

    def retry(self, token: int, nonce: bytes, ticket: str) -> bool:
        if self.record and self.record.state == "retrying" and self.record.ticket == ticket:
            return True
        if not self._is_running(token, nonce):
            return False
        self.record = replace(
            self.record, state="retrying", until=self.now + us(PAUSE_SECONDS), ticket=ticket, run=None,
            why=("timeout", 1),
        )  # fmt: skip
        return True

    def fail(self, token: int, nonce: bytes) -> bool:
        if self.record and self.record.state == "cooling" and self.record.failed_by == nonce:
            return True
        if not self._is_running(token, nonce):
            return False
        self.record = replace(
            self.record, state="cooling", until=self.now + us(COOLING_SECONDS), run=None, why=("syntax", 2),
            failed_by=nonce,
        )  # fmt: skip
        return True

    def release(self, token: int, nonce: bytes) -> bool:
        if not self._is_running(token, nonce):
            return False
        self._rest()
        return True

    def hand_back(self, token: int, nonce: bytes) -> bool:
        if self.record and self.record.state == "queued" and self.record.claim == nonce:
            return True
        if not self._is_running(token, nonce):
            return False
        self.record = replace(
            self.record, state="queued", until=self.now + us(QUEUE_TTL_SECONDS), claim=nonce, run=None,
            published=self.now, republished=0,
        )  # fmt: skip
        return True

    def invalidate(self, hard: bool, bookmarks: tuple[str, ...]) -> int:
        generation = self.draw()
        if hard:
            self.entry = None
        elif self.entry:
            self.entry = replace(self.entry, generation=generation, stale=True)
        record = self.record or Record("invalidated")
        self.record = replace(
            record, generation=generation, number=generation, hard=generation if hard else record.hard,
            bookmarks=merge(record.bookmarks, bookmarks),
        )  # fmt: skip
        if record.state not in {"queued", "running"}:
            self._rest()
        return generation


def merge(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    """Bookmarks of two lists; the new ones are not repeated when they stand there already, side by side."""
    there = any(old[at : at + len(new)] == new for at in range(len(old)))
    return old if not new or there else old + new
