"""The lease record of docs/explanation/protocol.md in plain Python: the model that the scripts are compared with.

No Redis and no Lua in here. A step is a call of one method; it changes the model and returns the reply that the script
must give. Times are µs on the model's own clock, which the test moves together with Redis'. Nothing is approximate: the
record's fields, and the moment at which Redis drops a key, must equal the replies to HGETALL and PEXPIRETIME.
"""

from __future__ import annotations

from dataclasses import replace

from tests.property.lease_fields import Record, Run, StoredEntry, merge
from tests.support.lease_world import (
    COOLING_SECONDS,
    HARD_TTL_SECONDS,
    LEASE_SECONDS,
    LIMIT_SECONDS,
    MAX_COOLING_SECONDS,
    PAUSE_SECONDS,
    QUEUE_TTL_SECONDS,
    REPUBLISH_SECONDS,
    RETENTION_SECONDS,
    TTL_SECONDS,
)

CLAIMED, ALREADY_REFRESHED, REFUSED = 1, 2, 3
ACQUIRED, ALREADY_FRESH, HELD = 1, 2, 3
ACCEPTED, ACCEPTED_AS_STALE, SUPERSEDED, INVALIDATED, LOST, PREVIOUS_GONE = 1, 2, 3, 4, 5, 6


BOOKMARKS_KEPT_US = 600_000_000
TOLERATED_US = 1_000_000  # how far Redis' clock may be behind one of its own earlier times


def us(seconds: float) -> int:
    return int(seconds * 1_000_000)


class Model:
    """Entry and record of one key; None if missing."""

    def __init__(self, by: str) -> None:
        self.now = 0
        self.by = by
        self.record: Record | None = None
        self.entry: StoredEntry | None = None

    def move_clock(self, now: int) -> None:
        """Set the clock, and drop what Redis expires by then."""
        self.now = now
        if self.record and self.record.gone_at_ms < now // 1000:
            self.record = None
        if self.entry and self.entry.gone_at_ms < now // 1000:
            self.entry = None

    def after(self, seconds: float) -> int:
        """Return when Redis drops a key that expires in ``seconds``."""
        return self.now // 1000 + round(seconds * 1000)

    def kept_until(self, seconds: float) -> int:
        """Return when Redis drops a record that is kept for ``seconds``, and as long as its bookmarks count."""
        return max(self.after(seconds), self.now // 1000 + round(self._bookmarks_left_us() / 1000))

    def _bookmarks_left_us(self) -> int:
        bookmarks, before, since = self.kept_bookmarks() if self.record else ((), (), 0)
        if bookmarks:
            return since + 2 * BOOKMARKS_KEPT_US - self.now
        return since + BOOKMARKS_KEPT_US - self.now if before else 0

    def has_passed(self, record: Record) -> bool:
        """Return whether the deadline has passed: by the clock, or since that was set back to before it was set."""
        return (record.until or 0) <= self.now or (record.since or 0) > self.now + TOLERATED_US

    def left_us(self) -> int:
        """Return how long the record's state lasts: never longer than it was granted."""
        record = self.record
        if self.has_passed(record):
            return 0
        return record.until - max(self.now, record.since or 0)

    def draw(self) -> int:
        """Return the number that a step draws now: above all known numbers of this key."""
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
        number = self.draw()
        if record:
            self.record = record = replace(record, number=number)
        if seen is not None and self.entry and self.entry.token != seen:
            return ALREADY_REFRESHED, record.state if record else "idle"
        if record and not self._claimable(record, force) and not (record.cools_only_bookmarks and not bookmarks):
            return REFUSED, record.state
        life_ms = self.kept_until(QUEUE_TTL_SECONDS + RETENTION_SECONDS)
        self.record = replace(
            record or Record("idle"), state="queued", since=self.now, until=self.now + us(QUEUE_TTL_SECONDS),
            number=number, claim=claim_id, claim_number=number, claimed_at=self.now, claim_bookmarks=bookmarks,
            cools_only_bookmarks=None, ticket=None, kind=None, why=None,
            attempts=self._failed_attempts(), ended_by=None, published=self.now, republished=0, by=self.by,
            gone_at_ms=max(record.gone_at_ms, life_ms) if record and record.failures else life_ms,
        )  # fmt: skip
        return CLAIMED, "queued"

    def _claimable(self, record: Record, force: bool) -> bool:
        if self.has_passed(record) or record.state == "invalidated":
            return True
        return force and record.state == "cooling"

    def unclaim(self, claim_id: str, forget: bool) -> bool:
        if not (self.record and self.record.state == "queued" and self.record.claim == claim_id):
            return False
        if forget:
            self.record = replace(self.record, failures=None, failures_until=None, attempts=None)
        self._rest(goes_on=True)
        return True

    def republish(self) -> int:
        record = self.record
        if not record or record.state != "queued":
            return 0
        is_due = self.now >= record.published + us(REPUBLISH_SECONDS) * 2**record.republished
        if not is_due and record.published <= self.now + TOLERATED_US:
            return 0
        self.record = replace(record, published=self.now, republished=record.republished + 1)
        return record.claim_number

    def acquire(self, nonce: bytes, number: int, ticket: str, in_place: bool = False) -> tuple[int, str, int]:
        record = self.record or Record("idle")
        if record.state == "running" and record.run and record.run.nonce == nonce:
            return ACQUIRED, "running", record.run.token
        with_ticket = record.state == "retrying" and ticket != "" and ticket == record.ticket
        is_waiting = record.state in {"idle", "invalidated"} or (record.state == "queued" and record.claim != nonce)
        if not (self.has_passed(record) or is_waiting or with_ticket):
            return HELD, record.state, 0
        requested = [number, record.generation or 0, record.claim_number if record.state == "queued" else 0]
        if self.entry and self.entry.token > max(*requested, self.entry.generation):
            return ALREADY_FRESH, record.state, self.entry.token
        overtakes = record.run is not None and record.run.nonce not in {nonce, record.in_place}
        token, waited = self.draw(), record.state in {"queued", "retrying"} and record.claimed_at is not None
        self.record = replace(
            record, state="running", since=self.now, until=self.now + us(LEASE_SECONDS), number=token,
            claim=None, ticket=None,
            claim_number=max(number, record.claim_number or 0, 1),
            claimed_at=min(record.claimed_at, self.now) if waited else self.now,
            run=Run(token, nonce, self.now + us(LIMIT_SECONDS)), kind=None, why=None, attempts=self._failed_attempts(),
            ended_by=None, cools_only_bookmarks=None, overtook=nonce if overtakes else None, by=self.by,
            in_place=nonce if in_place else None,
            gone_at_ms=self.kept_until(LIMIT_SECONDS + RETENTION_SECONDS),
        )  # fmt: skip
        return ACQUIRED, "running", token

    def _failed_attempts(self) -> int | None:
        """Return the failed attempts when the next run is claimed or begins. None: no attempt.

        A lapsed run is one, but not in place.
        """
        record = self.record
        if record is None or record.state == "cooling":
            return None
        has_lapsed = record.state == "running" and record.run.nonce != record.in_place
        return ((record.attempts or 0) + has_lapsed) or None

    def kept_bookmarks(self) -> tuple[tuple[str, ...], tuple[str, ...], int]:
        """Return the bookmarks of invalidations: of this period, and of the one before; and when this one began."""
        record = self.record
        since = record.bookmarks_since or 0
        if self.now - since < BOOKMARKS_KEPT_US:
            return record.bookmarks or (), record.bookmarks_before or (), since
        if self.now - since < 2 * BOOKMARKS_KEPT_US:
            return (), record.bookmarks or (), since + BOOKMARKS_KEPT_US
        return (), (), self.now

    def to_read_after(self) -> tuple[str, ...]:
        """Return the bookmarks after which the run's load reads, each at its last place."""
        bookmarks, before, _ = self.kept_bookmarks()
        newest_first = dict.fromkeys(reversed((*before, *bookmarks, *(self.record.claim_bookmarks or ()))))
        return tuple(reversed(newest_first))

    def _is_running(self, token: int, nonce: bytes) -> bool:
        run = self.record and self.record.run
        return bool(self.record and self.record.state == "running" and run and (run.token, run.nonce) == (token, nonce))

    def renew(self, token: int, nonce: bytes) -> bool:
        record = self.record
        if not self._is_running(token, nonce) or record.until <= self.now or record.run.limit <= self.now:
            return False
        limit = record.run.limit - max(0, (record.since or 0) - self.now)
        until = min(self.now + us(LEASE_SECONDS), limit)
        self.record = replace(record, since=self.now, until=until, run=replace(record.run, limit=limit))
        return True

    def commit(self, token: int, nonce: bytes, prolongs: bytes | None = None) -> int:
        record, entry = self.record, self.entry
        run = record.run if record else None
        if not run or (run.token, run.nonce) != (token, nonce):
            if entry and (entry.token, entry.nonce) == (token, nonce):
                return ACCEPTED_AS_STALE if entry.generation > entry.token else ACCEPTED
            return SUPERSEDED if record else LOST
        if entry and entry.token >= token:
            return SUPERSEDED
        claimed_since = record.state == "queued"
        if (record.hard or 0) > token:
            self._end_run(claimed_since)
            return INVALIDATED
        if prolongs is not None and (not entry or entry.nonce != prolongs):
            return PREVIOUS_GONE
        stale = (record.generation or 0) > token
        self.entry = StoredEntry(token, nonce, token + us(TTL_SECONDS), self.after(HARD_TTL_SECONDS))
        if stale:
            self.entry = replace(self.entry, generation=record.generation, soft_expiry=self.now)
        if stale or claimed_since:
            self._end_run(claimed_since)
        else:
            self.record = None
        return ACCEPTED_AS_STALE if stale else ACCEPTED

    def _end_run(self, claimed_since: bool) -> None:
        if claimed_since:
            self.record = replace(self.record, run=None, failures=None, failures_until=None, attempts=None)
        else:
            self._rest()

    def _rest(self, *, goes_on: bool = False) -> None:
        """Drop claim and run; ``goes_on``: failures and attempts so far still count."""
        life_ms = self.kept_until(RETENTION_SECONDS)
        record, self.record = self.record, None
        goes_on = goes_on and bool(record.failures or record.attempts)
        if record.generation or goes_on:
            self.record = replace(
                record, state="invalidated" if record.generation else "idle", since=None, until=0, claim=None,
                run=None, ticket=None, kind=None, why=None, by=None, claim_bookmarks=None, cools_only_bookmarks=None,
                failures=record.failures if goes_on or not record.failures else None,  # a 0 stays
                gone_at_ms=max(record.gone_at_ms, life_ms) if goes_on else life_ms,
            )  # fmt: skip

    def retry(self, token: int, nonce: bytes, ticket: str) -> bool:
        if self.record and self.record.state == "retrying" and self.record.ticket == ticket:
            return True
        if not self._is_running(token, nonce):
            return False
        self.record = replace(
            self.record, state="retrying", since=self.now, until=self.now + us(PAUSE_SECONDS), ticket=ticket, run=None,
            kind="timeout", attempts=1, gone_at_ms=self.kept_until(PAUSE_SECONDS + RETENTION_SECONDS),
        )  # fmt: skip
        return True

    def fail(
        self, token: int, nonce: bytes, *, is_counted: bool = False, bookmarks: int = 0, why: str = ""
    ) -> tuple[float, int, int] | None:
        """Return the pause in seconds, consecutive failures, and the previous failed run; None: not the lease's run."""
        record = self.record
        if record and record.state == "cooling" and record.ended_by == nonce:
            return self.left_us() / 1e6, record.failures or 0, 0
        if not self._is_running(token, nonce):
            return None
        goes_on = record.failures_until is None or (record.claimed_at or 0) < record.failures_until
        failures, pause_seconds = (record.failures or 0) if goes_on else 0, COOLING_SECONDS
        if is_counted:
            failures += 1
            pause_seconds = min(COOLING_SECONDS * 2 ** (failures - 1), MAX_COOLING_SECONDS)
        self.record = replace(
            record, state="cooling", since=self.now, until=self.now + us(pause_seconds), run=None,
            kind="syntax", why=why or None, attempts=2, ended_by=nonce, failures=failures, failed_token=token,
            claim_bookmarks=None,
        )  # fmt: skip
        if bookmarks and record.claim_bookmarks:
            self.record = replace(self.record, cools_only_bookmarks=1)
        elif bookmarks == 2 and (record.generation or 0) < token:
            self.record = replace(
                self.record, bookmarks=None, bookmarks_before=None, bookmarks_since=None,
                cools_only_bookmarks=1 if record.bookmarks else None,
            )  # fmt: skip
        remembered_seconds = pause_seconds + max(RETENTION_SECONDS, pause_seconds)
        self.record = replace(
            self.record, failures_until=self.now + us(remembered_seconds),
            gone_at_ms=self.kept_until(remembered_seconds),
        )  # fmt: skip
        return pause_seconds, failures, record.failed_token or 0

    def hand_back(self, token: int, nonce: bytes) -> bool:
        if self.record and self.record.state == "queued" and self.record.claim == nonce:
            return True
        if not self._is_running(token, nonce):
            return False
        self.record = replace(
            self.record, state="queued", since=self.now, until=self.now + us(QUEUE_TTL_SECONDS), claim=nonce, run=None,
            published=self.now, republished=0, gone_at_ms=self.kept_until(QUEUE_TTL_SECONDS + RETENTION_SECONDS),
        )  # fmt: skip
        return True

    def invalidate(self, hard: bool, bookmarks: tuple[str, ...]) -> int:
        generation = self.draw()
        if hard:
            self.entry = None
        elif self.entry:
            soft_expiry = min(self.entry.soft_expiry, self.now)
            self.entry = replace(self.entry, generation=generation, soft_expiry=soft_expiry)
        record = self.record or Record("invalidated")
        self.record = replace(
            record, generation=generation, number=generation, hard=generation if hard else record.hard,
            failures=None, failures_until=None, attempts=None,
        )  # fmt: skip
        if bookmarks:
            kept, before, since = self.kept_bookmarks()
            self.record = replace(
                self.record, bookmarks=merge(kept, bookmarks), bookmarks_before=before, bookmarks_since=since
            )
        if record.state in {"queued", "running"}:
            gone_at_ms = max(record.gone_at_ms, self.kept_until(RETENTION_SECONDS))
            self.record = replace(self.record, gone_at_ms=gone_at_ms)
        else:
            self._rest()
        return generation
